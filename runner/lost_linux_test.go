package runner

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	client "berth/clients/go"
)

// stubbornWork writes for ever and ignores every polite signal, as does a daemon of it.
const stubbornWork = daemon + stubborn

func TestATakeoverEndsTheTreeAtOnceAndKeepsTheDirectory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, stubbornWork)
	out := p.begin()
	p.awaitFile("beat")
	p.awaitFile("daemon")
	before := s.saved()
	s.takeOver("it went \x1b[31mastray")
	e := p.await(out)

	var unsaved *UnsavedError
	var lost *LostError
	if !errors.As(e.err, &unsaved) || !errors.As(e.err, &lost) || e.ExitCode != ExitUnsaved {
		t.Fatalf("got %+v, %v", e.Result, e.err)
	}
	for _, want := range []string{"takeover", "went", p.Dir, "tenure_ended"} {
		if !strings.Contains(e.err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, e.err)
		}
	}
	if strings.ContainsRune(e.err.Error(), '\x1b') {
		t.Errorf("a stranger's reason reaches the terminal as it is: %q", e.err)
	}
	requireStill(t, p.Dir)
	requireUnsavedMarker(t, p.Dir)
	if after := s.saved(); len(after) != len(before) {
		t.Errorf("saved are %v, were %v", after, before)
	}
	s.requireFree()
	if result := s.script(s.second, "true").mustRun(); result.Epoch <= e.Epoch {
		t.Errorf("the next epoch is %d after %d", result.Epoch, e.Epoch)
	}
}

// requireStill fails when something in the directory still grows.
func requireStill(t *testing.T, dir string) {
	t.Helper()
	size := func() (all int64) {
		for _, name := range []string{"beat", "daemon"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				all += info.Size()
			}
		}
		return all
	}
	before := size()
	<-time.After(200 * time.Millisecond)
	if after := size(); after != before {
		t.Errorf("the command still writes in %s", dir)
	}
}

func TestATakeoverDuringTheSaveIsNoticedAndNothingIsSaved(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, call := range []string{"announce", "upload", "commit"} {
		before := s.saved()
		p := s.script(s.first, "echo late > late")
		p.on(func(name string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if name == call {
				s.takeOver("too late")
			}
			return next.RoundTrip(request)
		})
		result, err := p.run()
		var lost *LostError
		if !errors.As(err, &lost) || result.ExitCode != ExitUnsaved || result.Saved != nil {
			t.Errorf("%s: got %+v, %v", call, result, err)
		}
		if after := s.saved(); len(after) != len(before) {
			t.Errorf("%s: saved are %v, were %v", call, after, before)
		}
		if p.awaitFile("late") != "late" {
			t.Errorf("%s: the work is gone", call)
		}
		s.requireFree()
	}
}

func TestATakeoverDuringTheRestoreRunsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "echo ran > ran")
	p.on(func(name string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if name == "download" {
			s.takeOver("changed my mind")
			<-request.Context().Done() // a renewal tells
		}
		return next.RoundTrip(request)
	})
	result, err := p.run()
	var lost *LostError
	if !errors.As(err, &lost) || result.ExitCode != ExitFailed {
		t.Errorf("got %+v, %v", result, err)
	}
	s.requireFree()
}

// An answer that this program does not know says nothing about a tenure, least of all that it stands.
func TestARefusalOfAnUnknownKindEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, endless)
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if _, err := os.Stat(filepath.Join(p.Dir, "here")); err == nil && call == "renew" {
			return respond(request, http.StatusConflict, client.Problem{Code: "a_code_of_next_year", Detail: "Something new."}), nil
		}
		return next.RoundTrip(request)
	})
	result, err := p.run()
	var lost *LostError
	if !errors.As(err, &lost) || result.ExitCode != ExitUnsaved || !strings.Contains(err.Error(), "a_code_of_next_year") {
		t.Errorf("got %+v, %v", result, err)
	}
	requireUnsavedMarker(t, p.Dir)
}

func TestASlowOrBrokenNetworkNeverEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, renewal := range map[string]func(request *http.Request, next http.RoundTripper) (*http.Response, error){
		"at once":  late(0),
		"2 s":      late(20 * time.Millisecond),
		"20 s":     late(200 * time.Millisecond),
		"too late": late(2 * quickPace.call),
		"never": func(*http.Request, http.RoundTripper) (*http.Response, error) {
			return nil, syscall.ECONNRESET
		},
		"lost answers": func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			return nil, errors.Join(syscall.ECONNRESET, err)
		},
		"a page of a proxy": func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
			response := respond(request, http.StatusNotFound, client.Problem{})
			response.Header.Set("Content-Type", "text/html")
			return response, nil
		},
		"busy": func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
			return respond(request, http.StatusServiceUnavailable, client.Problem{Code: "unavailable", Detail: "Not now."}), nil
		},
	} {
		p := s.script(s.first, `echo x > here; until [ -s go ]; do sleep 0.01; done; echo '`+name+`' > did; rm go`)
		p.pace.renew, p.pace.call = 200*time.Millisecond, 600*time.Millisecond // a hundredth of the normal ones
		var renewals atomic.Int64
		p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if call != "renew" {
				return next.RoundTrip(request)
			}
			renewals.Add(1)
			return renewal(request, next)
		})
		out := p.begin()
		p.awaitFile("here")
		before := renewals.Load()
		eventually(t, 20*time.Second, "renewals go on", func() bool { return renewals.Load() >= before+4 })
		put(t, p.Dir, "go", "x")
		if e := p.await(out); e.err != nil || e.ExitCode != 0 || e.Saved == nil {
			t.Errorf("%s: got %+v, %v; want the command to go on", name, e.Result, e.err)
		}
		s.requireFree()
	}
}

func late(by time.Duration) func(*http.Request, http.RoundTripper) (*http.Response, error) {
	return func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		select {
		case <-time.After(by):
			return next.RoundTrip(request)
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
}

func TestARequestToStopEndsTheCommandByItsDeadlineAndSaves(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, c := range map[string]struct {
		script string
		code   int
	}{
		"obedient": {`trap 'echo bye > bye; exit 0' TERM; echo x > ../here; while :; do sleep 0.01; done`, 143},
		"stubborn": {`trap '' TERM; echo x > ../here; while :; do sleep 0.01; done`, 137},
	} {
		p := s.script(s.first, c.script)
		p.stopFrom(func() bool { _, err := os.Stat(filepath.Join(dirOf(p.Dir), "here")); return err == nil })
		result, err := p.run()
		if err != nil || result.ExitCode != c.code || result.Saved == nil {
			t.Errorf("%s: got %+v, %v; want code %d and the work saved", name, result, err, c.code)
		}
		if run := s.Must(http.MethodGet, "/api/heartbeat-runs/"+result.RunID.String(), nil); run["status"] != "interrupted" {
			t.Errorf("%s: the run is %s", name, run["status"])
		}
		if n := strings.Count(p.notices.String(), "tidying up"); n != 1 {
			t.Errorf("%s: the reason is told %d times: %s", name, n, p.notices)
		}
		s.requireFree()
	}
}

func TestARequestToStopBeforeTheCommandRunsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "echo ran > ran")
	p.stopFrom(func() bool { return true })
	p.hold = "download"
	result, err := p.run()
	var interrupted *Interruption
	if !errors.As(err, &interrupted) || interrupted.Reason != "tidying up" || result.ExitCode != 143 {
		t.Errorf("got %+v, %v", result, err)
	}
	s.requireFree()
}

// stopFrom lets each renewal carry a request to stop, once asked says so; its clock is an hour off this host's.
func (p *play) stopFrom(asked func() bool) {
	var once sync.Once
	var deadline time.Time
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if call == p.hold {
			<-request.Context().Done()
		}
		response, err := next.RoundTrip(request)
		if err != nil || call != "renew" || !asked() {
			return response, err
		}
		_ = response.Body.Close()
		now := time.Now().Add(time.Hour).UTC()
		once.Do(func() { deadline = now.Add(300 * time.Millisecond) })
		return respondJSON(request, object{
			"lastRenewedAt": now, "token": nil, "tokenExpiresAt": nil,
			"stopRequested": object{"reason": "tidying up", "deadline": deadline},
		}), nil
	})
}

func TestTheCommandFindsTheNewestTokenInItsFile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, `echo "$BERTH_TOKEN" > token; rm "$BERTH_TOKEN_FILE"; echo "$BERTH_TOKEN_FILE" > ../removed
		until [ -s "$BERTH_TOKEN_FILE" ]; do sleep 0.01; done; cmp token "$BERTH_TOKEN_FILE" && ls -l "$BERTH_TOKEN_FILE"`)
	var token atomic.Value
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if _, removed := os.Stat(filepath.Join(dirOf(p.Dir), "removed")); err != nil || call != "renew" || removed != nil {
			return response, err
		}
		_ = response.Body.Close()
		now := time.Now().UTC()
		token.Store(strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer "))
		return respondJSON(request, object{"lastRenewedAt": now, "stopRequested": nil, "token": token.Load(), "tokenExpiresAt": now}), nil
	})
	p.mustRun()
	if !strings.HasPrefix(p.output(), "-rw-------") {
		t.Errorf("the token file is %s", p.output())
	}
	path := p.awaitFile("../removed")
	if _, err := os.Stat(dirOf(path)); !os.IsNotExist(err) {
		t.Errorf("the token is left behind in %s: %v", path, err)
	}
}
