package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth/authority"
)

// maxBodyBytes bounds every body but a snapshot's content.
const maxBodyBytes = 1 << 20

// readInput reads the body of an operation that takes JSON, refuses what is not text in it or in the query, and notes
// the digest of the request. Huma then reads the same bytes again.
func (s *server) readInput(ctx huma.Context, next func(huma.Context)) {
	address := ctx.URL()
	if problems := checkQuery(address.RawQuery); len(problems) > 0 {
		s.refuse(ctx, invalid(problems))
		return
	}
	if !takesJSON(ctx.Operation()) {
		next(ctx)
		return
	}
	if !isJSON(ctx.Header("Content-Type")) {
		s.refuse(ctx, transportProblem(http.StatusUnsupportedMediaType, nil))
		return
	}
	body, err := readBody(ctx)
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	if problems := checkText(body); len(problems) > 0 {
		s.refuse(ctx, invalid(problems))
		return
	}
	x := exchangeOf(ctx.Context())
	x.digest, x.body = digest(ctx.Method(), address.Path, body), body
	next(readContext{ctx, bytes.NewReader(body)})
}

func takesJSON(op *huma.Operation) bool {
	return op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil
}

func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// readBody reads at most maxBodyBytes of the body, which has to be here by the deadline that observe set. The deadline
// ends with the reading, since a handler may take its time; of a body that is given up it stays, or the server would
// wait for the rest before it answers.
func readBody(ctx huma.Context) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(ctx.BodyReader(), maxBodyBytes+1))
	var network net.Error
	switch {
	case err == nil && len(body) <= maxBodyBytes:
		_ = ctx.SetReadDeadline(time.Time{}) // a recorder in a test has none
		return body, nil
	case err == nil:
		return nil, transportProblem(http.StatusRequestEntityTooLarge, nil)
	case errors.As(err, &network) && network.Timeout():
		return nil, transportProblem(http.StatusRequestTimeout, nil)
	default:
		return nil, incompleteBody()
	}
}

func incompleteBody() *Problem {
	p := transportProblem(http.StatusBadRequest, nil)
	p.Detail = "The body ended before it was complete."
	return p
}

func invalid(problems []FieldProblem) *Problem {
	p := newProblem(http.StatusUnprocessableEntity, authority.ErrValidation.Code, authority.ErrValidation.Detail)
	p.Errors = problems
	return p
}

// digest is what two requests under one Idempotency-Key must share.
func digest(method, path string, body []byte) []byte {
	h := sha256.New()
	_, _ = io.WriteString(h, method+"\n"+path+"\n")
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// readContext is a context whose body has been read before.
type readContext struct {
	inner
	body io.Reader
}

type inner = huma.Context

func (c readContext) BodyReader() io.Reader { return c.body }

// Unwrap leads huma's adapter to the context that it made.
func (c readContext) Unwrap() huma.Context { return c.inner }
