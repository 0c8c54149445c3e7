// Package apitest runs the whole service for a test: the API over HTTP, on a database and a snapshot store of the
// test's own. Its client holds every answer, refusals too, against the OpenAPI document.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"berth/api"
	"berth/authority"
	"berth/db/dbtest"
	"berth/snapshot"
)

// Server is a running service. Its methods may be called from any goroutine of the test.
type Server struct {
	URL           string // without a slash at its end
	OperatorToken string
	Service       *authority.Service
	Database      *dbtest.Database

	t        testing.TB
	http     *httptest.Server
	contract *contract
}

// New starts a service for the length of the test.
func New(t testing.TB) *Server {
	t.Helper()
	return serve(t, dbtest.New(t), nil)
}

// NewSmall starts a service that has so few connections for all requests, and one for renewals, as `berth serve` has.
func NewSmall(t testing.TB, connections int32) *Server {
	t.Helper()
	database := dbtest.New(t)
	return serve(t, database, database.Open(t, connections), authority.WithRenewalPool(database.Open(t, 1)))
}

// serve starts a service on the pool, or on the database's own if that is nil.
func serve(t testing.TB, database *dbtest.Database, pool *pgxpool.Pool, options ...authority.Option) *Server {
	t.Helper()
	store, err := snapshot.OpenFileStore(t.TempDir())
	if err != nil {
		t.Fatalf("apitest: %v", err)
	}
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if dbtest.Pooled() {
		options = append(options, authority.WithPolling())
	}
	if pool == nil {
		pool = database.Pool
	}
	s := &Server{
		Database: database, Service: authority.New(pool, store, log, options...), OperatorToken: authority.GenerateSecret(),
		t: t, contract: loadContract(t),
	}
	ctx := context.Background()
	if err := s.Service.ClaimStore(ctx); err != nil {
		t.Fatalf("apitest: %v", err)
	}
	if err := s.Service.EnsureOperatorToken(ctx, s.OperatorToken); err != nil {
		t.Fatalf("apitest: %v", err)
	}
	s.http = httptest.NewServer(api.New(s.Service, api.Options{Log: log}))
	s.URL = s.http.URL
	t.Cleanup(s.http.Close) // before dbtest's, which closes the pool
	return s
}

// testLog writes the service's warnings and errors to the test's log, which is shown when the test fails.
type testLog struct{ t testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// Request is one call. Body is nothing when nil, sent as it is when it is an io.Reader, a []byte or a string, and
// as JSON otherwise.
type Request struct {
	Method, Path, Token string
	Header              http.Header
	Body                any
}

// Reply is what came back, already compared with the document.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON decodes the body as an object; a body that is none is an empty one.
func (r Reply) JSON() map[string]any {
	decoded := map[string]any{}
	_ = json.Unmarshal(r.Body, &decoded)
	return decoded
}

// Into decodes the body into v.
func (r Reply) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Errorf("the answer %s does not fit: %v", r.Body, err)
	}
}

// Do calls the API and returns the status with the decoded body.
func (s *Server) Do(method, path, token string, body any) (int, map[string]any) {
	s.t.Helper()
	reply := s.Send(Request{Method: method, Path: path, Token: token, Body: body})
	return reply.Status, reply.JSON()
}

// Must is Do as the operator, and ends the test unless the answer is a success.
func (s *Server) Must(method, path string, body any) map[string]any {
	s.t.Helper()
	status, answer := s.Do(method, path, s.OperatorToken, body)
	if status >= 300 {
		s.t.Fatalf("%s %s: %d %v", method, path, status, answer)
	}
	return answer
}

// Send calls the API. An answer that is not as the document says fails the test; one that does not come at all is a
// failure with status 0.
func (s *Server) Send(r Request) Reply {
	s.t.Helper()
	request, err := r.http(s.URL)
	if err != nil {
		s.t.Errorf("apitest: %v", err)
		return Reply{}
	}
	response, err := s.http.Client().Do(request)
	if err != nil {
		s.t.Errorf("apitest: %v", err)
		return Reply{}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Errorf("apitest: read the answer of %s %s: %v", r.Method, r.Path, err)
	}
	reply := Reply{Status: response.StatusCode, Header: response.Header, Body: body}
	if err := s.contract.check(request, reply); err != nil {
		s.t.Errorf("%s %s answers %d %s\nwhich is not what the document says: %v", r.Method, r.Path, reply.Status, cut(body), err)
	}
	return reply
}

func (r Request) http(base string) (*http.Request, error) {
	body, isJSON, err := r.reader()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(context.Background(), r.Method, base+r.Path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range r.Header {
		request.Header[name] = values
	}
	if r.Token != "" {
		request.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if isJSON && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

func (r Request) reader() (body io.Reader, isJSON bool, err error) {
	switch b := r.Body.(type) {
	case nil:
		return nil, false, nil
	case io.Reader:
		return b, false, nil
	case []byte:
		return bytes.NewReader(b), true, nil
	case string:
		return strings.NewReader(b), true, nil
	default:
		encoded, err := json.Marshal(b)
		return bytes.NewReader(encoded), true, err
	}
}

// cut keeps a message readable.
func cut(body []byte) string {
	const enough = 2000
	if len(body) > enough {
		return string(body[:enough]) + "…"
	}
	return string(body)
}
