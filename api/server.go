package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"berth/api/docsui"
	"berth/authority"
)

// Options are what New can do without.
type Options struct {
	Log     *slog.Logger // slog.Default if nil
	Version string       // of the program, for the metrics; "dev" if empty

	// Patience is how long a caller may take for a JSON body, or for the next piece of an archive that it sends or
	// receives; a minute if zero. A transfer that goes on may take as long as it takes.
	Patience time.Duration
}

type server struct {
	rules    *authority.Service
	log      *slog.Logger
	api      huma.API
	metrics  *metrics
	patience time.Duration
	room     *semaphore.Weighted // for requests that are worked on: see admit
}

// unwrap finds the request and the writer behind huma's context.
var unwrap = humago.Unwrap

// New returns the whole HTTP service: the operations, the document and its page, metrics. With a nil service it can
// print the document and answer nothing else.
//
// The handler sets read deadlines where it reads bodies, so an http.Server around it needs ReadHeaderTimeout and no
// ReadTimeout or WriteTimeout: they would cut long uploads and downloads.
func New(service *authority.Service, options Options) http.Handler {
	s, mux := build(service, options)
	s.documents(mux)
	mux.Handle("GET /metrics", s.metrics.handler())
	docs := docsui.Handler()
	if pages, ok := docs.(*http.ServeMux); ok {
		docs = s.route(pages)
	}
	mux.Handle("/docs", docs)
	mux.Handle("/docs/", docs)
	return s.observe(s.inLine(s.route(mux)))
}

// build makes the API with all of its operations on a mux of its own.
func build(service *authority.Service, options Options) (*server, *http.ServeMux) {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.Version == "" {
		options.Version = "dev"
	}
	if options.Patience == 0 {
		options.Patience = time.Minute
	}
	mux := http.NewServeMux()
	s := &server{
		rules: service, log: options.Log, metrics: newMetrics(options.Version), patience: options.Patience,
		room: semaphore.NewWeighted(requestsAtOnce),
	}
	if service != nil {
		s.metrics.registry.MustRegister(newCleanupDebt(service, options.Log), newWriterAlarms(service, options.Log))
	}
	s.api = humago.New(mux, configuration())
	s.api.UseMiddleware(s.authenticate, s.readInput)
	s.operations()
	return s, mux
}

// operations registers every operation of the API, in the order in which the document's readers meet them.
func (s *server) operations() {
	for _, register := range []func(){
		s.health, s.reservations, s.reservationPlaces, s.tenures, s.takeovers, s.stopRequests,
		s.recoveryTokens, s.snapshots, s.workspaces, s.events, s.issues, s.selections,
		s.runs, s.leases, s.receipts, s.companies, s.memberships, s.agents, s.projects, s.environments, s.decisions,
		s.tokens, s.settings,
	} {
		register()
	}
}

// route answers with the mux, and says as problems what the mux would say as plain text: that there is no such route,
// or not with that method.
func (s *server) route(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fallback, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		said := refusalRecorder{header: http.Header{}}
		fallback.ServeHTTP(&said, r)
		p := newProblem(http.StatusNotFound, codeRouteNotFound, "There is no such route. /docs lists all of them.")
		if said.status == http.StatusMethodNotAllowed {
			p = newProblem(said.status, codeMethodNotAllowed, "This route does not take "+cut(r.Method, 20)+".")
			p.header("Allow", said.header.Get("Allow"))
		}
		exchangeOf(r.Context()).sign(p).write(w)
	})
}

// refusalRecorder keeps what the mux would have answered, but not the words.
type refusalRecorder struct {
	header http.Header
	status int
}

func (r *refusalRecorder) Header() http.Header         { return r.header }
func (r *refusalRecorder) WriteHeader(status int)      { r.status = status }
func (r *refusalRecorder) Write(b []byte) (int, error) { return len(b), nil }

// observe is the outermost layer: it names the request, bounds what browsers do with the answer, catches panics, and
// writes the log line and the metrics once the answer is out.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		x := newExchange(r)
		r = r.WithContext(withExchange(r.Context(), x))
		answer := &answerWriter{ResponseWriter: w}
		setSecurityHeaders(answer.Header(), r)
		answer.Header().Set("X-Request-Id", x.id)
		if r.ContentLength != 0 {
			// Without a deadline, whoever sends half a body would keep the connection, and the answer, for ever.
			_ = http.NewResponseController(w).SetReadDeadline(began.Add(s.patience)) // a recorder in a test has none
		}
		defer func() {
			cause := recover()
			s.settle(r, x, answer, cause)
			s.record(r, x, answer, time.Since(began))
			if cause != nil && answer.broken {
				panic(http.ErrAbortHandler) // cuts the connection: half an answer must not look like a whole one
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

// settle answers for a handler that panicked, if it can still be answered.
func (s *server) settle(r *http.Request, x *exchange, answer *answerWriter, cause any) {
	if cause == nil {
		return
	}
	answer.broken = answer.status != 0
	if cause == http.ErrAbortHandler { //nolint:errorlint // the value itself says: the log has it already
		answer.broken = true
		return
	}
	where := debug.Stack()
	if p, ok := cause.(panicked); ok {
		cause, where = p.cause, p.stack
	}
	s.log.ErrorContext(r.Context(), "request panicked", "requestId", x.id, "method", x.method, "path", x.path,
		"panic", fmt.Sprint(cause), "stack", string(where))
	if !answer.broken {
		x.sign(newProblem(http.StatusInternalServerError, codeInternal, internalDetail)).write(answer)
	}
}

func (s *server) record(r *http.Request, x *exchange, answer *answerWriter, took time.Duration) {
	s.metrics.observe(r.Pattern, answer.code(), x.code, took)
	level := slog.LevelInfo
	if r.Pattern == "GET /api/health" || r.Pattern == "GET /api/ready" || r.Pattern == "GET /metrics" {
		level = slog.LevelDebug // asked every few seconds by what watches the service
	}
	line := []any{
		"requestId", x.id, "method", x.method, "path", x.path,
		"status", answer.code(), "bytes", answer.bytes, "took", took,
	}
	if x.code != "" {
		line = append(line, "code", x.code)
	}
	if x.principal.Role != "" {
		line = append(line, "actor", x.principal.Actor())
	}
	s.log.Log(r.Context(), level, "request", line...)
}

// setSecurityHeaders says that answers are data and not pages; the documentation page widens this for itself.
func setSecurityHeaders(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// answerWriter notes the status and the size of an answer.
type answerWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
	broken bool // began, and was given up
}

func (w *answerWriter) WriteHeader(status int) {
	if w.status != 0 {
		return // huma sets a status of its own when a client left in the middle
	}
	if status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap leads http.ResponseController to the deadlines and the flushing of the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// code is the status that the client saw.
func (w *answerWriter) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
