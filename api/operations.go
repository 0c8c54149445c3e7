package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"berth/authority"
)

// endpoint describes an operation: what register cannot see from the types of its input and answer.
type endpoint struct {
	id      string // lowerCamel and verb first: it names the method in generated clients
	method  string
	path    string
	tag     string
	summary string
	doc     string
	status  int   // of success; 0 means 200, or 204 for an answer without a body
	open    bool  // needs no principal
	refuses []int // statuses beside those that follow from the method and the path

	describe func(*huma.Operation) // says what the types of input and answer cannot
}

// Answer is an answer with a body and nothing else to it.
type Answer[T any] struct{ Body T }

// answer converts what a call gave, if it gave something.
func answer[From, T any](value From, err error, convert func(From) T) (*Answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &Answer[T]{Body: convert(value)}, nil
}

// Nothing is the answer of an operation that has nothing to say: 204.
type Nothing struct{}

// register adds an operation to the API. handle converts, calls the rules as by, and converts; its errors become
// problems here.
func register[In, Out any](
	s *server, e endpoint, handle func(ctx context.Context, by authority.Principal, in *In) (*Out, error),
) {
	huma.Register(s.api, e.operation(), func(ctx context.Context, in *In) (*Out, error) {
		out, err := handle(ctx, principalOf(ctx), in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
}

func (e endpoint) operation() huma.Operation {
	op := huma.Operation{
		OperationID: e.id, Method: e.method, Path: e.path, Summary: e.summary, Description: e.doc,
		Tags: []string{e.tag}, DefaultStatus: e.status,
		// The body has been read, with a limit and a deadline, before huma sees it: readInput.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
	}
	if !e.open {
		op.Security = []map[string][]string{{bearerScheme: {}}}
	}
	op.Errors = e.errors()
	if e.describe != nil {
		e.describe(&op)
	}
	return op
}

// errors lists the statuses that an operation may refuse with. Huma adds 422, for what is wrong in the input, and 500.
func (e endpoint) errors() []int {
	statuses := append([]int{http.StatusServiceUnavailable}, e.refuses...)
	if !e.open {
		statuses = append(statuses, http.StatusUnauthorized, http.StatusForbidden)
	}
	if strings.Contains(e.path, "{") {
		statuses = append(statuses, http.StatusNotFound)
	}
	if e.method == http.MethodPost || e.method == http.MethodPut || e.method == http.MethodPatch {
		statuses = append(statuses, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestTimeout,
			http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	statuses = append(statuses, http.StatusUnprocessableEntity)
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

// PageQuery asks for a part of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many items at most."`
	Cursor string `query:"cursor" maxLength:"300" doc:"nextCursor of the part before. Leave it out for the first part."`
}

func (q PageQuery) page() authority.Page { return authority.Page{Limit: q.Limit, Cursor: q.Cursor} }

// List is a part of a list.
type List[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"nextCursor" nullable:"true" maxLength:"300" doc:"Give it as cursor for the next part. Null on the last."`
}

// listOf converts a list that a call gave, if it gave one.
func listOf[From, T any](list authority.List[From], err error, convert func(From) T) (*Answer[List[T]], error) {
	if err != nil {
		return nil, err
	}
	out := List[T]{Items: make([]T, 0, len(list.Items)), NextCursor: list.NextCursor}
	for _, item := range list.Items {
		out.Items = append(out.Items, convert(item))
	}
	return &Answer[List[T]]{Body: out}, nil
}

// IdempotencyKey makes a create answer again what it answered first.
type IdempotencyKey struct {
	Key string `header:"Idempotency-Key" maxLength:"200" pattern:"^[ -~]*$" doc:"Names this create. Sent again with the same body within a day, it answers what it answered first; with another body, 409 idempotency_key_reused."`
}

func (k IdempotencyKey) once(ctx context.Context) authority.Once { return exchangeOf(ctx).once(k.Key) }
