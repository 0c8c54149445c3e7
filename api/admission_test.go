package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestARequestThatFindsNoRoomIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	s, _ := build(nil, Options{})
	if !s.room.TryAcquire(requestsAtOnce) {
		t.Fatal("there is no room from the start")
	}
	gone, leave := context.WithCancel(t.Context())
	leave() // as the caller's patience, or ours, would
	ask := func(path string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(gone, http.MethodPost, path, nil)
		s.admit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), answer, request)
		return answer
	}
	refused := ask("/api/companies")
	if refused.Code != http.StatusServiceUnavailable || refused.Header().Get("Retry-After") == "" ||
		!strings.Contains(refused.Body.String(), `"code":"unavailable"`) {
		t.Errorf("without room: %d %v %s", refused.Code, refused.Header(), refused.Body)
	}
	for _, path := range []string{"/api/execution-workspaces/w/renew", "/api/execution-workspaces/w/snapshots/s/content", "/metrics", "/api/ready"} {
		if got := ask(path); got.Code != http.StatusNoContent {
			t.Errorf("%s without room: %d, and it needs none", path, got.Code)
		}
	}
	s.room.Release(requestsAtOnce)
}

func TestRoomIsGivenBackWhenAHandlerPanics(t *testing.T) {
	t.Parallel()
	s, _ := build(nil, Options{})
	func() {
		defer func() {
			if p, ok := recover().(panicked); !ok || p.cause != "broken" || !strings.Contains(string(p.stack), "TestRoomIsGivenBack") {
				t.Errorf("the panic came out as %+v", p)
			}
		}()
		broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })
		s.admit(broken, httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/x", nil))
	}()
	if !s.room.TryAcquire(requestsAtOnce) {
		t.Error("the room of a request that panicked is lost")
	}
}
