package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

// daytona answers as the documentation of its API says: sandboxes by id or by name, states that take their time, an
// error for a key that it does not know.
type daytona struct {
	id, name, state, desired string

	hides  bool   // as of a sandbox whose deletion failed: not found, and in a list when asked for those
	silent bool   // stop and delete answer nothing, as in older versions
	list   string // what a list is instead
	calls  []string
}

func (d *daytona) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(change func()) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			refuse := func(status int, message string) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_ = json.NewEncoder(w).Encode(map[string]any{"statusCode": status, "message": message, "path": r.URL.Path})
			}
			d.calls = append(d.calls, r.Method+" "+r.URL.Path)
			switch named := r.PathValue("id"); {
			case r.Header.Get("Authorization") != "Bearer key" || r.Header.Get("X-Daytona-Organization-ID") != "org":
				refuse(http.StatusUnauthorized, "Invalid credentials")
			case d.hides || named != d.id && named != d.name:
				refuse(http.StatusNotFound, fmt.Sprintf("Sandbox with ID or name %s not found", named))
			default:
				change()
				if d.silent && r.Method != http.MethodGet {
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]any{
					"id": d.id, "name": d.name, "organizationId": "org", "state": d.state, "desiredState": d.desired, "cpu": 4, "labels": map[string]string{},
				})
			}
		}
	}
	mux.Handle("GET /api/sandbox/{id}", answer(func() {}))
	mux.Handle("POST /api/sandbox/{id}/stop", answer(func() { d.state = "stopping" }))
	mux.Handle("DELETE /api/sandbox/{id}", answer(func() { d.state = "destroying" }))
	mux.HandleFunc("GET /api/sandbox", func(w http.ResponseWriter, r *http.Request) {
		d.calls = append(d.calls, r.Method+" "+r.URL.RequestURI())
		items := []map[string]any{}
		if d.hides && r.URL.Query().Get("includeErroredDeleted") == "true" && strings.HasPrefix(d.id, r.URL.Query().Get("id")) {
			items = append(items, map[string]any{"id": d.id, "state": d.state, "desiredState": d.desired})
		}
		if d.list != "" {
			_, _ = w.Write([]byte(d.list))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "nextCursor": nil})
	})
	return mux
}

// asked is the provider that an environment for the server would configure.
func (d *daytona) asked(t *testing.T, key string) Provider {
	t.Helper()
	server := httptest.NewServer(d.handler())
	t.Cleanup(server.Close)
	environment := fmt.Sprintf(`{"provider":{"kind":"daytona","url":%q,"apiKeyEnv":"BERTH_PROVIDER_DAYTONA_KEY","organizationId":"org"}}`, server.URL+"/api")
	p, err := NewDirectory(func(name string) string {
		if name != "BERTH_PROVIDER_DAYTONA_KEY" {
			return os.Getenv(name)
		}
		return key
	}).For("daytona", json.RawMessage(environment))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDaytonaIsAskedForStateStopAndDelete(t *testing.T) {
	t.Parallel()
	d := &daytona{id: "0d7c", name: "mine", state: "started"}
	p := d.asked(t, "key")
	if got, err := p.State(t.Context(), "0d7c"); err != nil || got != (Answer{"0d7c", StateRunning, "started"}) {
		t.Errorf("state: %+v %v", got, err)
	}
	if got, err := p.Stop(t.Context(), "0d7c"); err != nil || got != (Answer{"0d7c", StateRunning, "stopping"}) {
		t.Errorf("stop: %+v %v: a sandbox that is stopping did not stop", got, err)
	}
	if got, err := p.Destroy(t.Context(), "0d7c"); err != nil || got != (Answer{"0d7c", StateRunning, "destroying"}) {
		t.Errorf("delete: %+v %v: one that is being destroyed is not gone", got, err)
	}
	for i, want := range []string{"GET /api/sandbox/0d7c", "POST /api/sandbox/0d7c/stop", "DELETE /api/sandbox/0d7c"} {
		if i >= len(d.calls) || d.calls[i] != want {
			t.Errorf("calls are %v, want %s as number %d", d.calls, want, i)
		}
	}
	// A sandbox can be asked for by its name, which can be given to another: the receipt rests on the id.
	if got, err := p.State(t.Context(), "mine"); err != nil || got.ID != "0d7c" {
		t.Errorf("by name: %+v %v", got, err)
	}
	if _, err := p.State(t.Context(), "another"); KindOf(err) != KindNotFound {
		t.Errorf("unknown: %v", err)
	}
	if _, err := d.asked(t, "old key").State(t.Context(), "0d7c"); KindOf(err) != KindUnauthorized {
		t.Errorf("with another key: %v", err)
	}
}

func TestDaytonasWordsAreReadWithCare(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]State{
		"creating": StateRunning, "started": StateRunning, "stopping": StateRunning, "destroying": StateRunning, "restoring": StateRunning,
		"stopped": StateStopped, "archived": StateStopped, "archiving": StateStopped, "destroyed": StateDestroyed,
		"error": StateUnknown, "build_failed": StateUnknown, "unknown": StateUnknown, "Stopped": StateUnknown, "a new word": StateUnknown,
	} {
		d := &daytona{id: "0d7c", state: word}
		if got, err := d.asked(t, "key").State(t.Context(), "0d7c"); err != nil || got.State != want || got.Word != word {
			t.Errorf("%s: %+v %v, want %s", word, got, err, want)
		}
	}
	if _, err := (&daytona{id: "0d7c"}).asked(t, "key").State(t.Context(), "0d7c"); KindOf(err) != KindMalformed {
		t.Errorf("a sandbox without a state: %v", err)
	}
}

// Daytona says "not found" also of a sandbox whose deletion failed, and when it could not look.
func TestThatDaytonaDoesNotFindASandboxIsCheckedByItsList(t *testing.T) {
	t.Parallel()
	failed := &daytona{id: "0d7c", state: "error", desired: "destroyed", hides: true}
	if got, err := failed.asked(t, "key").State(t.Context(), "0d7c"); err != nil || got.ID != "0d7c" || got.State != StateUnknown {
		t.Errorf("a sandbox whose deletion failed: %+v %v", got, err)
	}
	if got := failed.calls[len(failed.calls)-1]; got != "GET /api/sandbox?id=0d7c&includeErroredDeleted=true" {
		t.Errorf("asked for the list by %s", got)
	}
	for list, want := range map[string]Kind{
		`{"items":[],"nextCursor":null}`:           KindNotFound,
		`{"items":[],"total":0,"totalPages":0}`:    KindNotFound,
		`[]`:                                       KindNotFound,
		`[{"id":"0d7c2","state":"started"}]`:       KindNotFound,
		`{"items":[],"nextCursor":"bmV4dA"}`:       KindMalformed,
		`{"items":[{"id":"a"}],"totalPages":2}`:    KindMalformed,
		`{"statusCode":200,"message":"elsewhere"}`: KindMalformed,
		`<html>`: KindMalformed,
	} {
		d := &daytona{id: "0d7c", hides: true, list: list}
		if got, err := d.asked(t, "key").State(t.Context(), "0d7c"); KindOf(err) != want || got != (Answer{}) {
			t.Errorf("the list %s: %+v %v, want %s", list, got, err, want)
		}
	}
	// Whoever answers 404 to everything is not Daytona.
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	base, _ := url.Parse(elsewhere.URL)
	proxy := &Daytona{base: base, key: "key", client: newHTTPClient()}
	if got, err := proxy.State(t.Context(), "0d7c"); KindOf(err) != KindRefused || got != (Answer{}) {
		t.Errorf("404 to everything: %+v %v", got, err)
	}
}

func TestASandboxThatIsToBeStartedHasNotStopped(t *testing.T) {
	t.Parallel()
	for desired, want := range map[string]State{
		"": StateStopped, "stopped": StateStopped, "archived": StateStopped, "destroyed": StateStopped,
		"started": StateUnknown, "paused": StateUnknown,
	} {
		d := &daytona{id: "0d7c", state: "stopped", desired: desired}
		if got, err := d.asked(t, "key").State(t.Context(), "0d7c"); err != nil || got.State != want {
			t.Errorf("stopped, to be %q: %+v %v", desired, got, err)
		}
	}
}

func TestADaytonaThatOnlyTakesAWishIsAskedForTheState(t *testing.T) {
	t.Parallel()
	d := &daytona{id: "0d7c", state: "started", silent: true}
	p := d.asked(t, "key")
	if got, err := p.Stop(t.Context(), "0d7c"); err != nil || got != (Answer{"0d7c", StateRunning, "stopping"}) {
		t.Errorf("stop: %+v %v", got, err)
	}
	if got, err := p.Destroy(t.Context(), "0d7c"); err != nil || got != (Answer{"0d7c", StateRunning, "destroying"}) {
		t.Errorf("delete: %+v %v", got, err)
	}
}

func TestAnIDReachesItsOwnSandboxAlone(t *testing.T) {
	t.Parallel()
	d := &daytona{id: "a/../b?c", state: "started"}
	p := d.asked(t, "key")
	if got, err := p.State(t.Context(), "a/../b?c"); err != nil || got.ID != "a/../b?c" {
		t.Errorf("an id with signs of an address: %+v %v", got, err)
	}
	asked := len(d.calls)
	for _, id := range []string{"", ".", ".."} {
		if _, err := p.Destroy(t.Context(), id); KindOf(err) != KindNotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
	if len(d.calls) != asked {
		t.Errorf("was asked %v", d.calls[asked:])
	}
}
