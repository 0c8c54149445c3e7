package runner

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waiting prepares a run that waits for the workspace.
func (s *stage) waiting(script string, wait time.Duration) *play {
	s.t.Helper()
	p := s.script(s.second, script)
	p.Wait = wait
	return p
}

// inLine waits until so many runs are in line.
func (s *stage) inLine(n int) {
	s.t.Helper()
	eventually(s.t, 20*time.Second, fmt.Sprintf("%d runs in line", n), func() bool {
		return len(s.items("/api/issues/"+s.second.String()+"/workspace/reservation/queue")) == n
	})
}

func TestRunsThatWaitHaveTheirTurnsInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	log := t.TempDir() + "/log"
	first := s.script(s.first, `echo x > here; until [ -s ../go ]; do sleep 0.01; done; echo first >> `+log)
	out := []<-chan ended{first.begin()}
	first.awaitFile("here")
	plays := []*play{first}
	for i, name := range []string{"second", "third", "fourth"} {
		p := s.waiting("echo "+name+" >> "+log, time.Minute)
		plays, out = append(plays, p), append(out, p.begin())
		s.inLine(i + 1)
	}
	put(t, dirOf(first.Dir), "go", "x")
	for i, p := range plays {
		if e := p.await(out[i]); e.err != nil || e.ExitCode != 0 || e.Epoch != int64(i+1) {
			t.Errorf("run %d: %+v, %v", i+1, e.Result, e.err)
		}
	}
	if got, err := os.ReadFile(log); err != nil || string(got) != "first\nsecond\nthird\nfourth\n" {
		t.Errorf("the order is %q (%v)", got, err)
	}
	s.requireFree()
}

func TestAWaitSaysWhereTheRunStandsAndEndsInARefusal(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.script(s.first, endless)
	out := first.begin()
	first.awaitFile("here")
	p := s.waiting("echo ran > ran", 3*time.Second)
	result, err := p.run()
	var refused *RefusedError
	if !errors.As(err, &refused) || result.ExitCode != ExitRefused {
		t.Errorf("got %+v, %v; want a refusal with 73", result, err)
	}
	said := p.notices.String()
	if want := "number 1 in line: run " + s.authority()["writerRunId"].(string); strings.Count(said, want) != 1 {
		t.Errorf("the notices say not once %q: %s", want, said)
	}
	s.inLine(0)
	for _, run := range s.runs() {
		if run["id"] == result.RunID.String() && run["status"] != "cancelled" {
			t.Errorf("the run that waited is %s", run["status"])
		}
	}
	first.signal(syscall.SIGTERM)
	first.await(out)
}

func TestAnInterruptedWaitGivesThePlaceUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.script(s.first, endless)
	firstOut := first.begin()
	first.awaitFile("here")
	p := s.waiting("echo ran > ran", time.Hour)
	out := p.begin()
	s.inLine(1)
	p.signal(syscall.SIGINT)
	e := p.await(out)
	var interrupted *Interruption
	if !errors.As(e.err, &interrupted) || e.ExitCode != 130 {
		t.Errorf("got %+v, %v; want an interruption with 130", e.Result, e.err)
	}
	s.inLine(0)
	first.signal(syscall.SIGTERM)
	first.await(firstOut)
	s.requireFree()
}

// A service that is away for a moment, or a proxy that cuts long requests off, costs nobody a place.
func TestAWaitOutlivesABrokenRequest(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.script(s.first, `echo x > here; until [ -s ../go ]; do sleep 0.01; done`)
	firstOut := first.begin()
	first.awaitFile("here")
	p := s.waiting("echo ran > ran", time.Minute)
	broken := 0
	p.on(func(name string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if name == "reservation" && broken < 2 {
			broken++
			return nil, errors.New("cut off")
		}
		return next.RoundTrip(request)
	})
	out := p.begin()
	s.inLine(1)
	put(t, dirOf(first.Dir), "go", "x")
	if e := p.await(out); e.err != nil || e.Epoch != 2 {
		t.Errorf("got %+v, %v", e.Result, e.err)
	}
	first.await(firstOut)
	s.requireFree()
}
