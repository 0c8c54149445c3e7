package runner

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// endless writes that it is there, and then waits for a signal.
const endless = `echo x > here; exec sleep 600`

// interruptAt sends the run a signal when it makes a call, before the service gets it.
func (p *play) interruptAt(call string, sig os.Signal) {
	var once sync.Once
	p.on(func(name string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if name == call {
			once.Do(func() { p.signal(sig) })
		}
		return next.RoundTrip(request)
	})
}

func TestAnInterruptBeforeTheCommandLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, c := range []struct {
		call string
		sig  syscall.Signal
		code int
	}{
		{"issue", syscall.SIGINT, 130},
		{"workspace", syscall.SIGTERM, 143},
		{"create", syscall.SIGINT, 130},
		{"apply", syscall.SIGINT, 130},
		{"reservation", syscall.SIGINT, 130},
		{"download", syscall.SIGHUP, 129},
		{"location", syscall.SIGINT, 130},
		{"dirty", syscall.SIGINT, 130},
	} {
		p := s.script(s.first, "echo ran > ran")
		p.interruptAt(c.call, c.sig)
		result, err := p.run()
		var interrupted *Interruption
		if !errors.As(err, &interrupted) || result.ExitCode != c.code {
			t.Errorf("%s: got %+v, %v; want an interruption with %d", c.call, result, err, c.code)
		}
		if _, err := os.Stat(p.Dir + "/ran"); err == nil {
			t.Errorf("%s: the command ran", c.call)
		}
		s.requireFree()
		if t.Failed() {
			t.Fatalf("at %s", c.call)
		}
	}
	for _, run := range s.runs() {
		if run["status"] != "cancelled" {
			t.Errorf("a run whose command did not run is %s", run["status"])
		}
	}
}

func TestAnInterruptOfTheCommandEndsItAndSavesWhatItDid(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for sig, c := range map[syscall.Signal]struct {
		script string
		code   int
	}{
		syscall.SIGINT:  {endless, 130},
		syscall.SIGTERM: {endless, 143},
		syscall.SIGHUP:  {`trap 'echo bye > bye; exit 9' HUP; echo x > here; while :; do sleep 0.01; done`, 9},
		syscall.SIGQUIT: {`trap 'exit 0' QUIT; echo x > here; while :; do sleep 0.01; done`, 131},
	} {
		p := s.script(s.first, "rm -f here; echo x > ../started; "+c.script)
		out := p.begin()
		p.awaitFile("../started")
		p.awaitFile("here")
		p.signal(sig)
		e := p.await(out)
		if e.err != nil || e.ExitCode != c.code || e.Saved == nil || !e.Released {
			t.Errorf("%s: got %+v, %v; want code %d and the work saved", sig, e.Result, e.err, c.code)
		}
		if run := s.Must(http.MethodGet, "/api/heartbeat-runs/"+e.RunID.String(), nil); run["status"] != "interrupted" {
			t.Errorf("%s: the run is %s", sig, run["status"])
		}
		s.requireFree()
	}
}

func TestAnInterruptWhileSavingOrGivingBackCutsNothingOff(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, call := range []string{"announce", "upload", "commit", "finish"} {
		p := s.script(s.first, "echo "+call+" > did")
		p.interruptAt(call, syscall.SIGINT)
		if result := p.mustRun(); result.Saved.ID.String() != s.saved()[0] {
			t.Errorf("%s: saved are %v", call, s.saved())
		}
		s.requireFree()
	}
}

func TestASecondInterruptWhileSavingLeavesEverythingAsItIsAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "echo precious > work")
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if call != "upload" {
			return next.RoundTrip(request)
		}
		p.signal(syscall.SIGINT)
		p.signal(syscall.SIGINT)
		<-request.Context().Done()
		return nil, request.Context().Err()
	})
	result, err := p.run()
	var unsaved *UnsavedError
	if !errors.As(err, &unsaved) || result.ExitCode != ExitUnsaved || result.Released {
		t.Fatalf("got %+v, %v; want unsaved work", result, err)
	}
	s.requireHeld(result)
	requireUnsavedMarker(t, p.Dir)
	s.requireSavedByHand(p, unsaved)
}

// A step that works on files and not on the network says no more than that it was cut off.
func TestAnInterruptWhileFilesAreRestoredIsReportedAsOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.script(s.first, `for i in $(seq 1 3000); do echo $i > $i; done`).mustRun()
	p := s.script(s.first, "echo ran > ran")
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if call == "download" && err == nil {
			response.Body = atEOF{response.Body, func() { p.signal(syscall.SIGINT) }}
		}
		return response, err
	})
	result, err := p.run()
	var interrupted *Interruption
	if !errors.As(err, &interrupted) || result.ExitCode != 130 {
		t.Errorf("got %+v, %v", result, err)
	}
	if entries, err := os.ReadDir(dirOf(p.Dir)); err != nil || len(entries) != 0 {
		t.Errorf("left beside the directory: %v, %v", entries, err)
	}
	s.requireFree()
}

// atEOF calls on when everything was read.
type atEOF struct {
	io.ReadCloser
	on func()
}

func (r atEOF) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		r.on()
	}
	return n, err
}

// Both signals may well be there before the first step of the save, and a save that never began is no lost tenure.
func TestTwoInterruptsBeforeTheSaveStillLeaveAWayToSave(t *testing.T) {
	t.Parallel()
	token, err := newTokenFile(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	signals := &Signals{received: make(chan os.Signal, 2)}
	signals.received <- syscall.SIGINT
	signals.received <- syscall.SIGINT
	nobody := &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	})}
	run := &session{Options: Options{URL: "http://nobody.invalid", HTTP: nobody, Signals: signals}.withDefaults(), tokens: token}
	run.dir = lockDir(t, t.TempDir())
	if run.own, err = connect(run.Options, "secret"); err != nil {
		t.Fatal(err)
	}
	run.tenure = newTenure(run.own, uuid.New(), client.Claim{}, func(string) {})
	err = run.close(context.Background(), Exit{}, nil)
	var unsaved *UnsavedError
	var interrupted *Interruption
	if !errors.As(err, &unsaved) || unsaved.TokenFile != token.path() || !errors.As(err, &interrupted) {
		t.Errorf("got %v, want the interruption and a token to save with", err)
	}
}

func TestTheEndOfTheContextEndsTheCommandAndSaves(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, endless)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := make(chan ended, 1)
	go func() {
		var e ended
		e.Result, e.err = Run(ctx, p.Options)
		out <- e
	}()
	p.awaitFile("here")
	cancel()
	if e := p.await(out); e.err != nil || e.ExitCode != 143 || e.Saved == nil {
		t.Errorf("got %+v, %v; want 143 and the work saved", e.Result, e.err)
	}
	s.requireFree()
}

func TestACommandThatIgnoresTheInterruptIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, `trap '' INT; echo x > here; until [ -s go ]; do sleep 0.01; done; exit 0`)
	out := p.begin()
	p.awaitFile("here")
	p.signal(syscall.SIGINT)
	put(t, p.Dir, "go", "x")
	// An end on request is not reported as a success, whatever the command says.
	if e := p.await(out); e.err != nil || e.ExitCode != 130 || e.Saved == nil {
		t.Errorf("got %+v, %v", e.Result, e.err)
	}
	s.requireFree()
}

func requireUnsavedMarker(t *testing.T, dir string) {
	t.Helper()
	if m, err := ReadMarker(dir); err != nil || !m.Unsaved {
		t.Errorf("the marker is %+v, %v; want unsaved work", m, err)
	}
}

// requireSavedByHand saves and releases with what a failed run left for that.
func (s *stage) requireSavedByHand(p *play, unsaved *UnsavedError) {
	s.t.Helper()
	token, err := os.ReadFile(unsaved.TokenFile)
	if err != nil {
		s.t.Fatal(err)
	}
	if info, err := os.Stat(unsaved.TokenFile); err != nil || info.Mode().Perm() != 0o600 {
		s.t.Errorf("the token file has %v, %v; want 0600", info.Mode(), err)
	}
	m, err := ReadMarker(p.Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hand := ByHand{
		Options: Options{URL: s.URL, Token: trimmed(token), Dir: p.Dir}, WorkspaceID: m.WorkspaceID, RunID: m.RunID, Epoch: m.Epoch,
	}
	if _, err := hand.Save(ctx, false); err != nil {
		s.t.Fatalf("the save by hand: %v", err)
	}
	if status, answer := s.Do(http.MethodPatch, "/api/heartbeat-runs/"+m.RunID.String(), trimmed(token), object{"status": "failed"}); status != http.StatusOK {
		s.t.Fatalf("the end by hand: %d %v", status, answer)
	}
	s.requireFree()
}
