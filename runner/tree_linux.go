package runner

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/provider"
)

// outerMargin is how much later than the inner supervisor the outer one kills:
// the inner one ends a tree more gently and can still report, the outer one
// makes sure when the inner one hangs.
const outerMargin = time.Second

// link is the wrapper's hold on the two supervisors.
type link struct {
	outer, inner *peer
	process      *os.Process // the outer supervisor
}

// start brings up the supervisors and waits until the command runs, or cannot.
func (t *Tree) start(s spec, files [3]*os.File) error {
	outer, outerFar, err := socketPair("outer")
	if err != nil {
		return err
	}
	defer outerFar.Close()
	inner, innerFar, err := socketPair("inner")
	if err != nil {
		return errors.Join(err, outer.file.Close())
	}
	defer innerFar.Close()
	t.link = link{outer: outer, inner: inner}

	t.link.process, err = os.StartProcess(ownProgram, supervisorArgs(roleOuter, s.Grace), &os.ProcAttr{
		// Not the wrapper's directory, which would be kept busy, and of its
		// environment what names the run: only the command needs the rest.
		Dir:   "/",
		Env:   runMark(s.Env),
		Files: []*os.File{files[0], files[1], files[2], outerFar, innerFar},
		// A group of its own, so that a kill of the wrapper's group spares it.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		t.link.close()
		return fmt.Errorf("start the supervisor of %s: %w", s.Argv[0], err)
	}
	// The far ends must be gone here, or this process would never see the
	// supervisors end.
	_ = outerFar.Close()
	_ = innerFar.Close()

	if err := t.awaitStart(s); err != nil {
		t.link.close()
		_, _ = t.link.process.Wait()
		return err
	}
	go t.follow()
	return nil
}

// runMark is what of a command's environment tells whose it is. The supervisors
// have it too: as long as they live the tree is not gone, whatever the command
// did to its own environment.
func runMark(env []string) []string {
	mark := []string{}
	for _, variable := range env {
		if strings.HasPrefix(variable, provider.RunVariable+"=") {
			mark = append(mark, variable)
		}
	}
	return mark
}

// awaitStart asks the inner supervisor for the command and reads the answer.
func (t *Tree) awaitStart(s spec) error {
	// A failed send shows as a failed read, which knows more.
	_ = t.link.inner.send(request{Start: &s})
	for {
		var r report
		if err := t.link.inner.decoder.Decode(&r); err != nil {
			return t.brokenStart(s)
		}
		switch {
		case r.Event == eventReady:
			continue
		case r.Event == eventStarted:
			t.pid = r.PID
			return nil
		case r.Event == eventFailed && r.Errno != 0:
			return s.startError(r.Errno)
		default:
			return fmt.Errorf("start the supervisor of %s: %s", s.Argv[0], r.Message)
		}
	}
}

// brokenStart says what became of a command whose inner supervisor ended without
// an answer. The outer one knows: either it could not start the inner one, or it
// ends what the inner one had begun.
func (t *Tree) brokenStart(s spec) error {
	for {
		var r report
		if err := t.link.outer.decoder.Decode(&r); err != nil {
			return fmt.Errorf("start %s: %w", s.Argv[0], ErrUnproven)
		}
		switch r.Event {
		case eventFailed:
			return fmt.Errorf("start the supervisor of %s: %s", s.Argv[0], r.Message)
		case eventSurviving:
			return fmt.Errorf("start %s: its supervisor was killed: %w", s.Argv[0], &SurvivorsError{Survivors: r.Survivors})
		case eventEmpty:
			return fmt.Errorf("start %s: its supervisor was killed; whatever had begun is ended", s.Argv[0])
		}
	}
}

// follow listens to both supervisors until they are gone and then judges.
func (t *Tree) follow() {
	var both sync.WaitGroup
	var outerEmpty, innerEmpty bool
	both.Go(func() {
		outerEmpty = t.listen(t.link.outer)
		if !outerEmpty {
			// Killed: one more kill and nobody would end the tree any more.
			_ = t.link.inner.send(request{End: &endRequest{Grace: t.grace}})
		}
	})
	both.Go(func() { innerEmpty = t.listen(t.link.inner) })
	both.Wait()
	_, _ = t.link.process.Wait()

	t.mu.Lock()
	t.exit.SupervisorLost = !outerEmpty || !innerEmpty
	t.mu.Unlock()
	// CMD dies by SIGKILL when the inner supervisor, its parent, does.
	t.setExit(syscall.WaitStatus(syscall.SIGKILL))

	// Whatever the command started is below both supervisors for as long as
	// they live, so the word of either proves that nothing is left.
	if outerEmpty || innerEmpty {
		t.finish(nil)
	} else {
		t.finish(ErrUnproven)
	}
	t.link.close()
}

// listen takes in what a supervisor reports and says whether its last word was
// that no descendant is left.
func (t *Tree) listen(p *peer) (empty bool) {
	for {
		var r report
		if err := p.decoder.Decode(&r); err != nil {
			return empty
		}
		switch r.Event {
		case eventStopped:
			t.noteStop(r.Status.StopSignal())
		case eventExited:
			t.setExit(r.Status)
		case eventSurviving:
			t.finish(&SurvivorsError{Survivors: r.Survivors})
		case eventEmpty:
			empty = true
		}
	}
}

func (l *link) signal(sig syscall.Signal) error {
	if err := l.inner.send(request{Signal: sig}); err != nil {
		return fmt.Errorf("%w: %w", errTreeEnded, err)
	}
	return nil
}

func (l *link) end(grace time.Duration) {
	_ = l.inner.send(request{End: &endRequest{Grace: grace}})
	_ = l.outer.send(request{End: &endRequest{Grace: grace + outerMargin}})
}

func (l *link) close() {
	for _, p := range []*peer{l.outer, l.inner} {
		_ = p.file.Close()
	}
}

// ownProgram is the running program itself, also when its file was replaced or
// removed since: the supervisors must speak this version of the protocol.
const ownProgram = "/proc/self/exe"

// checkProc refuses to run where /proc is missing or belongs to another PID
// namespace: descendants could not be found there.
func checkProc() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("a mounted /proc is needed to find what a command leaves behind: %w", err)
	}
	if strings.TrimSpace(self) != fmt.Sprint(os.Getpid()) {
		return errors.New("/proc belongs to another PID namespace: mount one of this namespace to run commands here")
	}
	return nil
}
