//go:build unix && !linux

package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const groupPoll = 20 * time.Millisecond

// link is the wrapper's hold on the command's process group, which stands for
// the tree where there are no subreapers. It is weaker: see the package comment.
type link struct {
	group int
	grace time.Duration

	once   sync.Once
	mu     sync.Mutex
	killAt time.Time
	begun  chan struct{} // closed when the tree is to be ended
	sooner chan struct{} // killAt was brought forward
}

func (t *Tree) start(s spec, files [3]*os.File) error {
	pid, err := syscall.ForkExec(s.Path, s.Argv, &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return s.startError(errno)
	case err != nil:
		return fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	t.pid = pid
	t.link.group, t.link.grace = pid, s.Grace
	t.link.begun = make(chan struct{})
	t.link.sooner = make(chan struct{}, 1)
	go t.reapCommand()
	go t.endGroup()
	return nil
}

// reapCommand waits for the command itself.
func (t *Tree) reapCommand() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(t.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err == nil && status.Stopped():
			t.noteStop(status.StopSignal())
			continue
		}
		t.setExit(status)
		t.link.end(t.link.grace)
		return
	}
}

// endGroup ends the group once that is asked for, until no member is left.
func (t *Tree) endGroup() {
	<-t.link.begun
	if t.link.untilKill() > 0 {
		_ = unix.Kill(-t.link.group, unix.SIGTERM)
		_ = unix.Kill(-t.link.group, unix.SIGCONT)
	}
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for !t.link.empty() {
		late := -t.link.untilKill()
		if late >= 0 {
			_ = unix.Kill(-t.link.group, unix.SIGKILL)
		}
		if late > killPatience {
			t.finish(&SurvivorsError{Survivors: []Survivor{{PID: t.link.group, Name: "process group", State: "?"}}})
			return
		}
		select {
		case <-poll.C:
		case <-t.link.sooner:
		}
	}
	<-t.exited
	t.finish(nil)
}

func (l *link) empty() bool {
	return errors.Is(unix.Kill(-l.group, 0), unix.ESRCH)
}

func (l *link) untilKill() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.killAt)
}

func (l *link) signal(sig syscall.Signal) error {
	return unix.Kill(-l.group, sig)
}

func (l *link) end(grace time.Duration) {
	killAt := time.Now().Add(grace)
	l.mu.Lock()
	if l.killAt.IsZero() || killAt.Before(l.killAt) {
		l.killAt = killAt
	}
	l.mu.Unlock()
	l.once.Do(func() { close(l.begun) })
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}
