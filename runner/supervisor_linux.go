package runner

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/provider"
)

// What argv[0] must be for this program to be a supervisor. No shell and no
// person starts a program under this name by accident.
const supervisorName = "berth-tree-supervisor"

const (
	roleOuter = "outer"
	roleInner = "inner"
)

// When the wrapper is gone everything has to be within 2 s, on a busy machine
// too, so SIGKILL comes well before. The outer supervisor leaves the inner one
// time to do it.
const (
	orphanedGrace      = 300 * time.Millisecond
	orphanedOuterGrace = 800 * time.Millisecond
)

func supervisorArgs(role string, grace time.Duration) []string {
	return []string{supervisorName, role, grace.String()}
}

// init turns the program into a supervisor when it was started as one. It runs
// before main, so that every program with this package in it, tests included,
// can run trees without a line of its own: one that forgot would run itself
// again instead of a supervisor.
func init() {
	if len(os.Args) != 3 || os.Args[0] != supervisorName {
		return
	}
	// CMD is killed when the *thread* that started it ends, so that thread has
	// to be one that lasts: the main one.
	runtime.LockOSThread()
	grace, err := time.ParseDuration(os.Args[2])
	if err != nil || (os.Args[1] != roleOuter && os.Args[1] != roleInner) {
		os.Exit(2)
	}
	supervise(os.Args[1] == roleOuter, grace)
	os.Exit(0)
}

// supervisor is a subreaper with one child of its own, and ends everything below
// it when that child ends, when it is asked to, or when the wrapper is gone.
type supervisor struct {
	outer    bool
	grace    time.Duration
	wrapper  *peer
	requests chan request
	children chan os.Signal // SIGCHLD
	asked    chan os.Signal // signals that mean: end

	child  int // its own child: CMD, or the inner supervisor; 0 when that ended
	ending *ending
}

func supervise(outer bool, grace time.Duration) {
	// The name in process lists; also, `pkill berth` then kills the wrapper
	// alone and leaves somebody to clean up.
	_ = os.WriteFile("/proc/self/comm", []byte(provider.SupervisorName), 0)

	s := &supervisor{outer: outer, grace: grace, requests: make(chan request)}
	var err error
	if s.wrapper, err = inheritedPeer(3); err != nil {
		return
	}
	s.catchSignals()
	if err := s.prepare(); err != nil {
		_ = s.wrapper.send(report{Event: eventFailed, Message: err.Error()})
		return
	}
	if !s.startChild() {
		return
	}
	go s.readRequests()
	s.loop()
	_ = s.wrapper.send(report{Event: eventEmpty})
}

func (s *supervisor) prepare() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	spawnThreads()
	return checkProc()
}

// spawnThreads makes the Go runtime start its threads now and keep them: a
// command that uses up the host's process limit must not take the supervisor
// down with it, which is what a runtime that gets no thread does.
func spawnThreads() {
	const threads = 6
	var pipe [2]int
	if unix.Pipe2(pipe[:], unix.O_CLOEXEC) != nil {
		return
	}
	done := make(chan struct{})
	for range threads {
		go func() {
			// A read that blocks in the kernel keeps a thread for itself.
			_, _ = unix.Read(pipe[0], make([]byte, 1))
			done <- struct{}{}
		}()
	}
	runtime.Gosched()
	_ = unix.Close(pipe[1])
	for range threads {
		<-done
	}
	_ = unix.Close(pipe[0])
}

// catchSignals keeps signals from ending the supervisor by accident. They are
// caught rather than ignored, since CMD would inherit that; and one that was
// ignored before (nohup) stays so, for CMD to inherit.
func (s *supervisor) catchSignals() {
	s.children = make(chan os.Signal, 1)
	signal.Notify(s.children, unix.SIGCHLD)
	s.asked = make(chan os.Signal, 1)
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		if !signal.Ignored(sig) {
			signal.Notify(s.asked, sig)
		}
	}
	nobody := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		if !signal.Ignored(sig) {
			signal.Notify(nobody, sig)
		}
	}
}

// startChild starts what this supervisor is for; false when that failed.
func (s *supervisor) startChild() bool {
	if s.outer {
		return s.startInner()
	}
	_ = s.wrapper.send(report{Event: eventReady})
	var r request
	if err := s.wrapper.decoder.Decode(&r); err != nil || r.Start == nil {
		return false // the wrapper is gone already: nothing has run
	}
	pid, err := syscall.ForkExec(r.Start.Path, r.Start.Argv, &syscall.ProcAttr{
		Dir:   r.Start.Dir,
		Env:   r.Start.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		failed := report{Event: eventFailed, Message: err.Error()}
		errors.As(err, &failed.Errno)
		_ = s.wrapper.send(failed)
		return false
	}
	s.child = pid
	_ = s.wrapper.send(report{Event: eventStarted, PID: pid})
	return true
}

func (s *supervisor) startInner() bool {
	const innerSocket = 4 // as the wrapper handed it over
	unix.CloseOnExec(innerSocket)
	pid, err := syscall.ForkExec(ownProgram, supervisorArgs(roleInner, s.grace), &syscall.ProcAttr{
		Dir:   "/",
		Env:   os.Environ(), // which names the run, and nothing else
		Files: []uintptr{0, 1, 2, innerSocket},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_ = s.wrapper.send(report{Event: eventFailed, Message: err.Error()})
		return false
	}
	// Kept open here, it would hide the inner supervisor's death.
	_ = unix.Close(innerSocket)
	s.child = pid
	return true
}

func (s *supervisor) readRequests() {
	defer close(s.requests)
	for {
		var r request
		if s.wrapper.decoder.Decode(&r) != nil {
			return
		}
		s.requests <- r
	}
}

// loop runs until the kernel says that there is no child left, which for a
// subreaper means that there is no descendant.
func (s *supervisor) loop() {
	timer := time.NewTimer(0)
	for {
		if s.reap() {
			return
		}
		wait := time.Hour
		if s.ending != nil {
			wait = s.sweep()
		}
		timer.Reset(wait)
		select {
		case <-s.children:
		case <-timer.C:
		case r, open := <-s.requests:
			if open {
				s.handle(r)
			} else {
				s.requests = nil
				s.endOrphaned()
			}
		case <-s.asked:
			s.end(s.grace)
		}
	}
}

func (s *supervisor) handle(r request) {
	switch {
	case r.End != nil:
		s.end(r.End.Grace)
	case r.Signal != 0 && s.child != 0 && !s.outer:
		// The child is not reaped before this goroutine does it, so the group
		// cannot be somebody else's by now.
		_ = unix.Kill(-s.child, r.Signal)
		if r.Signal == unix.SIGTERM || r.Signal == unix.SIGHUP {
			_ = unix.Kill(-s.child, unix.SIGCONT) // a stopped process cannot obey
		}
	}
}

// endOrphaned is the answer to the wrapper's death.
func (s *supervisor) endOrphaned() {
	if s.outer && s.child != 0 {
		s.end(orphanedOuterGrace)
	} else {
		s.end(orphanedGrace)
	}
}

// reap collects what ended, and says whether no child is left.
func (s *supervisor) reap() (empty bool) {
	for {
		var status unix.WaitStatus
		// WALL: children that do not announce their end by SIGCHLD count too.
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return errors.Is(err, unix.ECHILD)
		case pid == 0:
			return false
		case pid != s.child:
			continue
		case status.Stopped():
			if !s.outer {
				_ = s.wrapper.send(report{Event: eventStopped, Status: syscall.WaitStatus(status)})
			}
			continue
		}
		s.child = 0
		if !s.outer {
			_ = s.wrapper.send(report{Event: eventExited, Status: syscall.WaitStatus(status)})
		}
		if s.requests == nil {
			s.endOrphaned()
		} else {
			s.end(s.grace)
		}
	}
}
