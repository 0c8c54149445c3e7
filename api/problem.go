package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth/authority"
)

// Problem is the body of every answer that is not a success: RFC 9457, with a code to branch on.
type Problem struct {
	Type      string         `json:"type" format:"uri-reference" maxLength:"200" doc:"about:blank: the code says more."`
	Title     string         `json:"title" maxLength:"200" doc:"The words of the HTTP status."`
	Status    int            `json:"status" minimum:"400" maximum:"599" doc:"The HTTP status."`
	Detail    string         `json:"detail" maxLength:"2000" doc:"A sentence for people. It may change: branch on code."`
	Instance  string         `json:"instance" format:"uri-reference" maxLength:"2000" doc:"The path that was called."`
	Code      string         `json:"code" maxLength:"100" pattern:"^[a-z][a-z0-9_]*$" doc:"The stable name of what happened. New ones may come: take one that you do not know by its status."`
	Details   Object         `json:"details" doc:"What the code's description promises. Empty for most codes."`
	RequestID string         `json:"requestId" maxLength:"128" doc:"Names this request in the server's log."`
	Errors    []FieldProblem `json:"errors" doc:"For validation_failed: what is wrong where."`

	headers http.Header
}

// FieldProblem says what is wrong with one field of a request.
type FieldProblem struct {
	Location string `json:"location" maxLength:"1000" doc:"Where the value came from, as in body.name, query.limit or path.issueId."`
	Message  string `json:"message" maxLength:"2000" doc:"What is wrong with it."`
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus tells huma the status to answer with.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders tells huma which headers go with the answer.
func (p *Problem) GetHeaders() http.Header { return p.headers }

// ContentType gives the answer the media type of RFC 9457.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func (p *Problem) header(name, value string) {
	if p.headers == nil {
		p.headers = http.Header{}
	}
	p.headers.Set(name, value)
}

// newProblem is a problem without the marks of a request: see exchange.sign.
func newProblem(status int, code authority.Code, detail string) *Problem {
	return &Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail, Code: string(code), Errors: []FieldProblem{},
	}
}

// retryAfter asks the caller to come back after d, in whole seconds and at least one.
func (p *Problem) retryAfter(d time.Duration) {
	seconds := max(1, int64((d+time.Second-1)/time.Second))
	p.header("Retry-After", strconv.FormatInt(seconds, 10))
}

// write sends the problem without huma, where no operation was found or its handler failed to answer.
func (p *Problem) write(w http.ResponseWriter) {
	for name, values := range p.headers {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // whoever cannot be reached is gone
}

// The codes that HTTP itself gives, before the rules are asked. validation_failed, unauthenticated and unavailable
// are authority's.
const (
	codeMalformedBody    authority.Code = "malformed_body"
	codeRouteNotFound    authority.Code = "route_not_found"
	codeMethodNotAllowed authority.Code = "method_not_allowed"
	codeRequestTimeout   authority.Code = "request_timeout"
	codeBodyTooLarge     authority.Code = "body_too_large"
	codeUnsupportedMedia authority.Code = "unsupported_media_type"
	codeInternal         authority.Code = "internal"
)

// transportProblems are huma's own refusals, by the status that it gives them.
var transportProblems = map[int]struct {
	code   authority.Code
	detail string
}{
	http.StatusBadRequest:            {codeMalformedBody, "The body is not one JSON document."},
	http.StatusRequestTimeout:        {codeRequestTimeout, "The body did not arrive in time."},
	http.StatusRequestEntityTooLarge: {codeBodyTooLarge, "The body is larger than 1 MiB."},
	http.StatusUnsupportedMediaType:  {codeUnsupportedMedia, "The body must be application/json."},
	http.StatusUnprocessableEntity:   {authority.ErrValidation.Code, authority.ErrValidation.Detail},
}

// Huma asks these package variables for every problem that it makes itself, and for the schema of all of them. They
// are replaced here once, since its own model carries the text of any error, and the caller's body, into the answer.
func init() {
	huma.NewErrorWithContext = func(ctx huma.Context, status int, _ string, errs ...error) huma.StatusError {
		return exchangeOf(ctx.Context()).sign(transportProblem(status, errs))
	}
	huma.NewError = func(status int, _ string, errs ...error) huma.StatusError {
		return transportProblem(status, errs)
	}
	huma.ValidateStrictCasing = true // else "RUNID" would be taken for runId
	huma.DefaultArrayNullable = false
}

func transportProblem(status int, errs []error) *Problem {
	known, ok := transportProblems[status]
	if !ok {
		return newProblem(http.StatusInternalServerError, codeInternal, internalDetail)
	}
	p := newProblem(status, known.code, known.detail)
	for _, err := range errs {
		if field, ok := err.(huma.ErrorDetailer); ok {
			d := field.ErrorDetail() // its Value is left behind: for an error of the body it is the whole body
			p.Errors = append(p.Errors, FieldProblem{Location: cut(d.Location, 1000), Message: cut(d.Message, 2000)})
		}
	}
	return p
}

// cut shortens text to at most n characters.
func cut(text string, n int) string {
	count := 0
	for i := range text {
		if count == n {
			return text[:i]
		}
		count++
	}
	return text
}
