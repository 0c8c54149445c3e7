package api

import (
	"context"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"berth/authority"
)

const (
	// requestsAtOnce is how many requests are worked on at once: enough to keep the database's few connections busy.
	// More would only stand in the way of each other.
	requestsAtOnce = 128

	// admissionTime is how long a request waits to be worked on before it is told to come again.
	admissionTime = 10 * time.Second
)

// admit has a request worked on when there is room, on a stack of its own: what a request needs while it waits, to be
// worked on or for its turn, is then small, however deep the work is.
func (s *server) admit(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if needsNoRoom(r) {
		next.ServeHTTP(w, r)
		return
	}
	waiting, enough := context.WithTimeout(r.Context(), admissionTime)
	defer enough()
	if s.room.Acquire(waiting, 1) != nil {
		p := newProblem(http.StatusServiceUnavailable, authority.ErrUnavailable.Code, "The service has more to do than it can. The call is safe to repeat.")
		p.retryAfter(unavailableRetry)
		exchangeOf(r.Context()).sign(p).write(w)
		return
	}
	defer s.room.Release(1)
	apart(func() { next.ServeHTTP(w, r) })
}

// needsNoRoom tells the requests that are worked on at once, whatever else there is to do: renewals, which say that a
// writer is there; contents, which flow for as long as a network takes; and what watches over the service.
func needsNoRoom(r *http.Request) bool {
	path := r.URL.Path
	return strings.HasSuffix(path, "/renew") || strings.HasSuffix(path, "/content") ||
		path == "/api/health" || path == "/api/ready" || !strings.HasPrefix(path, "/api/")
}

// apart does something on a goroutine of its own, and panics as it does.
func apart(do func()) {
	var cause any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if cause = recover(); cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // the value itself
				cause = panicked{cause, debug.Stack()}
			}
		}()
		do()
	}()
	<-done
	if cause != nil {
		panic(cause)
	}
}

// panicked is a panic of another goroutine, and where it was.
type panicked struct {
	cause any
	stack []byte
}
