package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// exchange is what is known of one request and its answer, for the log, the metrics and the problems on the way.
type exchange struct {
	id     string
	method string
	path   string

	principal authority.Principal // the zero Principal where none is needed
	digest    []byte              // of method, path and body: see Once
	body      []byte              // of JSON, as it was read
	turn      *authority.Turn     // of a reservation that waits, or waited
	waits     bool                // and is handled again when its turn came
	code      string              // of the problem that was answered, if one was
}

type exchangeKey struct{}

// exchangeOf finds the exchange of a request. Outside of one, as when the document is printed, it is a blank.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// newExchange takes the id that a caller or a proxy gave the request, if it is fit for a log line, or makes one.
func newExchange(r *http.Request) *exchange {
	id := r.Header.Get("X-Request-Id")
	if !loggable(id) {
		id = newRequestID()
	}
	return &exchange{id: id, method: r.Method, path: r.URL.EscapedPath()}
}

func newRequestID() string {
	if id, err := uuid.NewV7(); err == nil {
		return id.String()
	}
	return uuid.NewString()
}

// loggable reports whether id is 1 to 128 letters, digits and the signs -_.:
func loggable(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' && c != ':' {
			return false
		}
	}
	return true
}

// sign marks a problem as the answer to this request.
func (x *exchange) sign(p *Problem) *Problem {
	p.Instance, p.RequestID = cut(x.path, 2000), x.id
	x.code = p.Code
	return p
}

// once is what makes a create that is called again answer what it answered first.
func (x *exchange) once(key string) authority.Once {
	if key == "" {
		return authority.Once{}
	}
	return authority.Once{Key: key, Digest: x.digest}
}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}
