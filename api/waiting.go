package api

import (
	"bytes"
	"io"
	"net/http"
)

// inLine lets requests wait for their turn, and handles them anew when it came. It is this far out so that thousands may
// wait: of a request that does there is nothing left meanwhile but its body and a nearly empty stack.
func (s *server) inLine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		defer func() { x.turn.Leave() }() // also when a handler panics
		for {
			s.admit(next, &turnWriter{ResponseWriter: w, x: x}, r)
			if !x.waits {
				return
			}
			x.turn.Await(r.Context())
			x.waits = false
			r.Body = io.NopCloser(bytes.NewReader(x.body))
		}
	})
}

// turnWriter drops what is answered while the request waits: the same handler will answer.
type turnWriter struct {
	http.ResponseWriter
	x       *exchange
	dropped http.Header
}

// Header implements http.ResponseWriter.
func (w *turnWriter) Header() http.Header {
	if !w.x.waits {
		return w.ResponseWriter.Header()
	}
	if w.dropped == nil {
		w.dropped = http.Header{}
	}
	return w.dropped
}

// WriteHeader implements http.ResponseWriter.
func (w *turnWriter) WriteHeader(status int) {
	if !w.x.waits {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *turnWriter) Write(content []byte) (int, error) {
	if w.x.waits {
		return len(content), nil
	}
	return w.ResponseWriter.Write(content)
}

// Unwrap leads http.ResponseController to the deadlines and the flushing of the connection.
func (w *turnWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
