package provider

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// samples is a provider as docs/providers.md describes one: it signs, it checks signatures, and it knows one machine.
type sample struct {
	secret  string
	machine WebhookAnswer
	seen    []string // the paths that were asked
}

func (s *sample) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	nonce := r.Header.Get(NonceHeader)
	answer := func(status int, value any) {
		content, _ := json.Marshal(value)
		w.Header().Set(SignatureHeader, SignWebhookAnswer([]byte(s.secret), status, nonce, content))
		w.WriteHeader(status)
		_, _ = w.Write(content)
	}
	want := SignWebhookRequest([]byte(s.secret), r.URL.EscapedPath(), r.Header.Get(TimestampHeader), nonce, body)
	var asked WebhookRequest
	switch {
	case r.Method != http.MethodPost || r.Header.Get(SignatureHeader) != want:
		answer(http.StatusUnauthorized, WebhookError{"bad_signature"})
		return
	case json.Unmarshal(body, &asked) != nil || asked.ID != s.machine.ID:
		answer(http.StatusNotFound, WebhookError{"not_found"})
		return
	}
	s.seen = append(s.seen, r.URL.Path)
	switch {
	case strings.HasSuffix(r.URL.Path, "/stop") && s.machine.State == StateRunning:
		s.machine.State = StateStopped
	case strings.HasSuffix(r.URL.Path, "/destroy"):
		s.machine.State = StateDestroyed
	}
	answer(http.StatusOK, s.machine)
}

// at is the webhook behind a handler.
func at(t *testing.T, handler http.Handler) *Webhook {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/berth")
	if err != nil {
		t.Fatal(err)
	}
	return newWebhook(base, "s3cret", newHTTPClient())
}

func TestAWebhookIsAskedForStateStopAndDestroy(t *testing.T) {
	t.Parallel()
	machine := &sample{secret: "s3cret", machine: WebhookAnswer{ID: "vm 1/ü", State: StateRunning, Word: "POWERED_ON"}}
	w := at(t, machine)
	state, err := w.State(t.Context(), "vm 1/ü")
	if want := (Answer{ID: "vm 1/ü", State: StateRunning, Word: "POWERED_ON"}); err != nil || state != want {
		t.Errorf("state: %+v %v", state, err)
	}
	if stopped, err := w.Stop(t.Context(), "vm 1/ü"); err != nil || stopped.State != StateStopped {
		t.Errorf("stop: %+v %v", stopped, err)
	}
	if destroyed, err := w.Destroy(t.Context(), "vm 1/ü"); err != nil || destroyed.State != StateDestroyed {
		t.Errorf("destroy: %+v %v", destroyed, err)
	}
	if got := strings.Join(machine.seen, " "); got != "/berth/state /berth/stop /berth/destroy" {
		t.Errorf("asked %s", got)
	}
	if _, err := w.State(t.Context(), "vm 2"); KindOf(err) != KindNotFound {
		t.Errorf("a machine that the provider does not know: %v", err)
	}
	machine.secret = "another"
	if _, err := w.State(t.Context(), "vm 1/ü"); KindOf(err) != KindMalformed {
		t.Errorf("a provider with another secret: %v", err)
	}
}

func TestAnAnswerThatIsNotSignedForThisRequestProvesNothing(t *testing.T) {
	t.Parallel()
	content := []byte(`{"id":"vm","state":"destroyed"}`)
	write := func(status int, signature func(r *http.Request) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if signature != nil {
				w.Header().Set(SignatureHeader, signature(r))
			}
			w.WriteHeader(status)
			_, _ = w.Write(content)
		}
	}
	secret := []byte("s3cret")
	for name, handler := range map[string]http.HandlerFunc{
		"no signature, as of a captive portal": write(200, nil),
		"of another nonce, as of a recording": write(200, func(*http.Request) string {
			return SignWebhookAnswer(secret, 200, "nonce", content)
		}),
		"of another status": write(200, func(r *http.Request) string {
			return SignWebhookAnswer(secret, 404, r.Header.Get(NonceHeader), content)
		}),
		"of another body": write(200, func(r *http.Request) string {
			return SignWebhookAnswer(secret, 200, r.Header.Get(NonceHeader), []byte(`{}`))
		}),
		"the request's own, sent back": write(200, func(r *http.Request) string { return r.Header.Get(SignatureHeader) }),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/berth/state", http.StatusTemporaryRedirect)
		},
		"not found by somebody in between": write(404, nil),
	} {
		if answer, err := at(t, handler).State(t.Context(), "vm"); KindOf(err) != KindMalformed || answer != (Answer{}) {
			t.Errorf("%s: %+v %v", name, answer, err)
		}
	}
}

// signed answers everything with that, signed.
func signed(status int, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(SignatureHeader, SignWebhookAnswer([]byte("s3cret"), status, r.Header.Get(NonceHeader), []byte(content)))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(content))
	}
}

func TestWhatAWebhookMayAnswer(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]Answer{
		`{"id":"vm","state":"stopped"}`:                       {"vm", StateStopped, "stopped"},
		`{"id":"other","state":"destroyed","word":"gone"}`:    {"other", StateDestroyed, "gone"},
		`{"id":"vm","state":"hibernated"}`:                    {"vm", StateUnknown, "hibernated"},
		`{"id":"vm","state":"STOPPED","also":"what is new"}`:  {"vm", StateUnknown, "STOPPED"},
		`{"id":"vm","state":"unknown","word":"host is down"}`: {"vm", StateUnknown, "host is down"},
		`{}`: {"", StateUnknown, ""},
	} {
		if got, err := at(t, signed(200, content)).State(t.Context(), "vm"); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", content, got, err, want)
		}
	}
	for _, c := range []struct {
		status  int
		content string
		want    Kind
	}{
		{200, `<html>`, KindMalformed},
		{200, strings.Repeat(" ", answerBytes) + `{}`, KindMalformed},
		{401, `{"error":"bad_signature"}`, KindUnauthorized},
		{404, `{"error":"no_such_route"}`, KindRefused},
		{404, `gone`, KindRefused},
		{500, `{"error":"not_found"}`, KindRefused},
		{503, ``, KindRefused},
	} {
		if got, err := at(t, signed(c.status, c.content)).State(t.Context(), "vm"); KindOf(err) != c.want || got != (Answer{}) {
			t.Errorf("%d %.20s: %+v %v, want %s", c.status, c.content, got, err, c.want)
		}
	}
}

func TestAProviderThatDoesNotAnswerIsToldApart(t *testing.T) {
	t.Parallel()
	dead := at(t, signed(200, `{}`))
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	dead.base, _ = url.Parse(server.URL)
	if _, err := dead.State(t.Context(), "vm"); KindOf(err) != KindUnreachable {
		t.Errorf("nobody listens: %v", err)
	}
	hangs := make(chan struct{})
	slow := at(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	t.Cleanup(func() { close(hangs) })
	slow.client.Timeout = 20 * time.Millisecond
	if _, err := slow.State(t.Context(), "vm"); KindOf(err) != KindTimeout {
		t.Errorf("no answer in time: %v", err)
	}
	cut := at(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"id":`))
		panic(http.ErrAbortHandler)
	}))
	if _, err := cut.State(t.Context(), "vm"); KindOf(err) != KindUnreachable {
		t.Errorf("half an answer: %v", err)
	}
	foreign := httptest.NewTLSServer(signed(200, `{}`))
	t.Cleanup(foreign.Close)
	foreign.Config.ErrorLog = nil
	strict := at(t, signed(200, `{}`))
	strict.base, _ = url.Parse(foreign.URL)
	if _, err := strict.State(t.Context(), "vm"); KindOf(err) != KindUnauthorized {
		t.Errorf("a certificate of nobody known: %v", err)
	}
}

// The worked example of the protocol's description is one that this code makes.
func TestTheDescribedExampleIsReal(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	secret, body := []byte("correct horse battery staple"), []byte(`{"id":"vm-17"}`)
	reply := []byte(`{"id":"vm-17","state":"stopped","word":"POWERED_OFF"}`)
	for _, line := range []string{
		string(body), string(reply), hexSHA256(body), hexSHA256(reply),
		"Berth-Signature: " + SignWebhookRequest(secret, "/berth/state", "1796083200", "K7Q2N5W4T3XJ6B2ZD5M4A7CYEU", body),
		"Berth-Signature: " + SignWebhookAnswer(secret, 200, "K7Q2N5W4T3XJ6B2ZD5M4A7CYEU", reply),
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/providers.md lacks %s", line)
		}
	}
}

// What a provider sends may hold credentials. Whoever logs an error of this package logs its kind and nothing of that.
func TestNothingThatAProviderSentIsInAnError(t *testing.T) {
	t.Parallel()
	const planted = "hunter2-planted-credential"
	for name, handler := range map[string]http.HandlerFunc{
		"in the body": signed(500, planted), "in a body that does not read": signed(200, planted), "in the error": signed(404, `{"error":"`+planted+`"}`),
		"in a header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", planted); w.WriteHeader(302) },
	} {
		_, err := at(t, handler).State(t.Context(), "vm")
		var missing *Error
		if !errors.As(err, &missing) || strings.Contains(err.Error(), planted) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
