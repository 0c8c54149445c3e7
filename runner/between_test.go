package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	client "berth/clients/go"
)

// on lets a function stand between the run and the service. It gets each request
// with the name of its last part, as in "renew", and the way on.
func (p *play) on(between func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error)) {
	next := transport()
	p.t.Cleanup(next.CloseIdleConnections)
	p.HTTP = &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		return between(callName(request), request, next)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// callName is a short name for each call that Run makes.
func callName(r *http.Request) string {
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case strings.HasSuffix(r.URL.Path, "/content") && r.Method == http.MethodGet:
		return "download"
	case strings.HasSuffix(r.URL.Path, "/content"):
		return "upload"
	case r.Method == http.MethodPost && last == "snapshots":
		return "announce"
	case r.Method == http.MethodPost && last == "heartbeat-runs":
		return "create"
	case r.Method == http.MethodPatch:
		return "finish"
	case strings.Contains(r.URL.Path, "/snapshots/") && r.Method == http.MethodGet:
		return "snapshot"
	case strings.HasPrefix(r.URL.Path, "/api/issues/") && r.Method == http.MethodGet && last != "workspace":
		return "issue"
	}
	return last
}

// respond is an answer of a service that is not there.
func respond(r *http.Request, status int, problem client.Problem) *http.Response {
	body := fmt.Sprintf(`{"status":%d,"code":%q,"detail":%q}`, status, problem.Code, problem.Detail)
	return reply(r, status, "application/problem+json", body)
}

func respondJSON(r *http.Request, value object) *http.Response {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // the test made it
	}
	return reply(r, http.StatusOK, "application/json", string(body))
}

func reply(r *http.Request, status int, kind, body string) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}
