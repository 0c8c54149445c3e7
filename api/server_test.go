package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"berth/api"
	"berth/api/apitest"
)

// handler is the service without a database: enough for what is answered before the rules are asked.
func handler(log io.Writer) http.Handler {
	return api.New(nil, api.Options{Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
}

type problem struct {
	Type, Title, Detail, Instance, Code, RequestID string
	Status                                         int
	Details                                        map[string]any
	Errors                                         []any
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) problem {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
		t.Fatalf("content type is %q, body %s", kind, w.Body)
	}
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != w.Code || p.RequestID == "" || p.Details == nil || p.Errors == nil {
		t.Errorf("problem is %s", w.Body)
	}
	return p
}

func TestUnknownRoutesAndMethodsAreProblems(t *testing.T) {
	t.Parallel()
	h := handler(io.Discard)
	for _, c := range []struct {
		method, path, code, allow string
		status                    int
	}{
		{"GET", "/", "route_not_found", "", 404},
		{"GET", "/api", "route_not_found", "", 404},
		{"GET", "/api/companies/x/y", "route_not_found", "", 404},
		{"GET", "/docs/nothing.js", "route_not_found", "", 404},
		{"GET", "/schemas/Problem.json", "route_not_found", "", 404},
		{"DELETE", "/api/companies", "method_not_allowed", "GET, HEAD, POST", 405},
		{"POST", "/api/health", "method_not_allowed", "GET, HEAD", 405},
		{"PUT", "/docs", "method_not_allowed", "GET, HEAD", 405},
		{"BREW", "/openapi.yaml", "method_not_allowed", "GET, HEAD", 405},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		p := problemOf(t, w)
		if w.Code != c.status || p.Code != c.code || w.Header().Get("Allow") != c.allow || p.Instance != c.path {
			t.Errorf("%s %s: %d %+v, Allow %q", c.method, c.path, w.Code, p, w.Header().Get("Allow"))
		}
	}
}

func TestRequestIDIsTheCallersOrANewOne(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := handler(&log)
	for given, kept := range map[string]bool{
		"trace-1.a:b_c": true, "": false, "two words": false, "line\nbreak": false, strings.Repeat("a", 129): false, "é": false,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/nothing", nil)
		r.Header["X-Request-Id"] = []string{given}
		h.ServeHTTP(w, r)
		id := w.Header().Get("X-Request-Id")
		if (id == given) != kept || id == "" || problemOf(t, w).RequestID != id {
			t.Errorf("given %q, answered %q", given, id)
		}
		if !strings.Contains(log.String(), `"requestId":"`+id+`"`) {
			t.Errorf("the log has no line for %q", id)
		}
	}
}

func TestCallsWithoutAPrincipalAreRefusedBeforeTheirBodyIsRead(t *testing.T) {
	t.Parallel()
	h := handler(io.Discard) // has no rules to ask: a call that got past the token would panic
	for _, op := range operations(t) {
		if op.Security == nil {
			continue
		}
		for _, header := range []string{"", "Bearer", "Bearer ", "Basic dTpw", "bearer\t", "Bearer " + strings.Repeat("a", 9000)} {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), op.method, op.somewhere()+"?bad=%zz", failingBody{t})
			if header != "" {
				r.Header.Set("Authorization", header)
			}
			h.ServeHTTP(w, r)
			p := problemOf(t, w)
			if w.Code != http.StatusUnauthorized || p.Code != "unauthenticated" || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s with %.20q: %d %+v", op.OperationID, header, w.Code, p)
			}
		}
	}
}

// failingBody must not be read.
type failingBody struct{ t *testing.T }

func (b failingBody) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

func TestAnswersAreNotTakenForPages(t *testing.T) {
	t.Parallel()
	h := handler(io.Discard)
	for path, policy := range map[string]string{"/api/health": "default-src 'none'; frame-ancestors 'none'", "/docs": "script-src 'self'"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(w.Header().Get("Content-Security-Policy"), policy) || w.Header().Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

func TestAPanicIsAProblemAndALogLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/companies", nil)
	r.Header.Set("Authorization", "Bearer x")
	handler(&log).ServeHTTP(w, r) // there are no rules to ask, which no handler expects
	if p := problemOf(t, w); w.Code != http.StatusInternalServerError || p.Code != "internal" || strings.Contains(w.Body.String(), "nil pointer") {
		t.Errorf("%d %+v", w.Code, p)
	}
	if !strings.Contains(log.String(), "nil pointer") || !strings.Contains(log.String(), "stack") {
		t.Errorf("the log has not the panic: %s", log.String())
	}
}

func TestMetricsCountRoutesAndCodes(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	for range 3 {
		s.Do(http.MethodGet, "/api/issues/"+uuid.NewString(), s.OperatorToken, nil)
	}
	metrics := string(s.Send(apitest.Request{Method: http.MethodGet, Path: "/metrics"}).Body)
	for _, want := range []string{
		`berth_http_requests_total{route="GET /api/issues/{issueId}",status="404"} 3`,
		`berth_http_problems_total{code="issue_not_found",route="GET /api/issues/{issueId}"} 3`,
		`berth_http_request_duration_seconds_count{route="GET /api/issues/{issueId}"} 3`,
		`berth_build_info{version="dev"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestReadinessFollowsTheDatabase(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	if status, answer := s.Do(http.MethodGet, "/api/ready", "", nil); status != http.StatusOK || answer["status"] != "ready" {
		t.Errorf("ready: %d %v", status, answer)
	}
	s.Database.Pool.Close()
	reply := s.Send(apitest.Request{Method: http.MethodGet, Path: "/api/ready"})
	if reply.Status != http.StatusServiceUnavailable || reply.JSON()["code"] != "unavailable" || reply.Header.Get("Retry-After") == "" {
		t.Errorf("without a database: %d %s", reply.Status, reply.Body)
	}
	if status, _ := s.Do(http.MethodGet, "/api/health", "", nil); status != http.StatusOK {
		t.Errorf("health without a database: %d", status)
	}
}

func TestADatabaseOutOfReachIsUnavailable(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	s.Must(http.MethodGet, "/api/companies", nil)
	s.Database.Pool.Close()
	reply := s.Send(apitest.Request{Method: http.MethodGet, Path: "/api/companies", Token: s.OperatorToken})
	if reply.Status != http.StatusServiceUnavailable || reply.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", reply.Status, reply.Body)
	}
}
