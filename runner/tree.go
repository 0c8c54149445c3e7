package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DefaultGrace is how long a tree has between SIGTERM and SIGKILL.
const DefaultGrace = 10 * time.Second

// killPatience is how long after the first SIGKILL a tree may still have live
// processes before Wait gives up on it. A process outlives SIGKILL only while
// the kernel holds it (a hung disk) or when it belongs to another user.
const killPatience = 10 * time.Second

// ErrUnproven says that the supervisors were killed before they could say that
// the tree is empty: the tree may be gone or not. Whoever gets it must neither
// save the directory as final nor release the tenure.
var ErrUnproven = errors.New("the supervisors of the command were killed: some of its processes may still be running")

// errTreeEnded answers a signal for a command that is no longer there.
var errTreeEnded = errors.New("the command has ended")

// Command is what a tree starts from.
type Command struct {
	// Path is the program: with a slash a path, taken from Dir when relative;
	// without one a name to look up in this process's PATH.
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Dir is the working directory; this process's own when empty.
	Dir string
	// Env is the whole environment; this process's own when nil.
	Env []string
	// Stdin, Stdout and Stderr become the command's own, without a copy in
	// between. Nil is /dev/null.
	Stdin, Stdout, Stderr *os.File
	// Grace is the time between SIGTERM and SIGKILL for what is left when the
	// command ends; DefaultGrace when zero.
	Grace time.Duration
}

// Exit says how the command itself ended.
type Exit struct {
	// Code is what a shell would report: the command's exit code, or 128 plus
	// the number of the signal that ended it.
	Code int
	// Signal is the signal that ended the command, 0 when it exited by itself.
	Signal syscall.Signal
	// Ended is the reason that the first Tree.End gave, empty when nobody asked.
	Ended string
	// Passed is the last of SIGHUP, SIGINT, SIGQUIT and SIGTERM that was passed
	// on to the command, 0 when there was none. A command may well exit with 0
	// after it.
	Passed syscall.Signal
	// SupervisorLost says that a supervisor was killed, and the tree was ended
	// for that. Code is then 137 unless the command had ended before.
	SupervisorLost bool
}

// StartError says why the command could not be started. Nothing of it ran.
type StartError struct {
	Path string
	// Code is 127 when there is no such command and 126 when there is one that
	// cannot be run, as in a shell.
	Code int
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

func (e *StartError) Unwrap() error { return e.Err }

// Survivor is a process that SIGKILL did not end.
type Survivor struct {
	PID   int
	Name  string
	State string // as in ps: D waits for a device, R runs, S sleeps, T is stopped
	Why   string // why it could not be signalled, empty when the kernel took the signal
}

// SurvivorsError says which processes of the tree still live although they were
// sent SIGKILL. The supervisors go on trying. Whoever gets it must neither save
// the directory as final nor release the tenure.
type SurvivorsError struct{ Survivors []Survivor }

func (e *SurvivorsError) Error() string {
	var list []string
	for _, s := range e.Survivors {
		line := fmt.Sprintf("%d %s (state %s)", s.PID, s.Name, s.State)
		if s.Why != "" {
			line += ": " + s.Why
		}
		list = append(list, line)
	}
	return "processes of the command cannot be ended: " + strings.Join(list, "; ")
}

// Tree is a started command with everything that descends from it. Its methods
// may be called from several goroutines.
type Tree struct {
	pid   int
	grace time.Duration

	exited  chan struct{}       // closed when the command itself has ended
	done    chan struct{}       // closed when Wait has its answer
	stopped chan syscall.Signal // what stopped the command, for job control

	mu       sync.Mutex
	exit     Exit
	hasExit  bool
	err      error
	finished bool

	link link // to the processes that hold the tree; differs by system
}

// StartTree starts the command. When ctx ends, the tree is ended with the
// command's grace. A *StartError says that the command could not be run, as
// does any other error that is neither ErrUnproven nor a *SurvivorsError: those
// say that it may have begun before its supervisor was killed.
func StartTree(ctx context.Context, c Command) (*Tree, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	s, err := c.resolve()
	if err != nil {
		return nil, err
	}
	files, closeFiles, err := c.files()
	if err != nil {
		return nil, err
	}
	defer closeFiles()

	t := &Tree{
		grace:   s.Grace,
		exited:  make(chan struct{}),
		done:    make(chan struct{}),
		stopped: make(chan syscall.Signal, 1),
	}
	if err := t.start(s, files); err != nil {
		return nil, err
	}
	unhook := context.AfterFunc(ctx, func() {
		t.End(context.Cause(ctx).Error(), s.Grace)
	})
	go func() {
		<-t.done
		unhook()
	}()
	return t, nil
}

// PID is the command's process id, which is its process group's too.
func (t *Tree) PID() int { return t.pid }

// Exited is closed when the command itself has ended; what it started may still
// be alive then, and is being ended.
func (t *Tree) Exited() <-chan struct{} { return t.exited }

// Done is closed when Wait would return at once.
func (t *Tree) Done() <-chan struct{} { return t.done }

// Wait returns when no process of the tree is left, and says how the command
// ended. ErrUnproven and *SurvivorsError say that this could not be reached;
// Exit is then what is known of the command.
func (t *Tree) Wait() (Exit, error) {
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit, t.err
}

// End ends the tree: SIGTERM to every process of it, SIGKILL after grace (at
// once when it is zero or less). It does not wait. A later call can shorten the
// time, never extend it.
func (t *Tree) End(reason string, grace time.Duration) {
	t.mu.Lock()
	if t.exit.Ended == "" && !t.finished {
		t.exit.Ended = reason
	}
	t.mu.Unlock()
	t.link.end(max(grace, 0))
}

// Signal sends a signal to the command's process group.
func (t *Tree) Signal(sig syscall.Signal) error {
	select {
	case <-t.exited:
		return errTreeEnded
	default:
	}
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		t.mu.Lock()
		t.exit.Passed = sig
		t.mu.Unlock()
	}
	return t.link.signal(sig)
}

// setExit records how the command itself ended.
func (t *Tree) setExit(status syscall.WaitStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasExit {
		return
	}
	t.hasExit = true
	if status.Signaled() {
		t.exit.Signal = status.Signal()
		t.exit.Code = 128 + int(status.Signal())
	} else {
		t.exit.Code = status.ExitStatus()
	}
	close(t.exited)
}

// finish gives Wait its answer; only the first one counts.
func (t *Tree) finish(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished {
		return
	}
	t.finished = true
	t.err = err
	close(t.done)
}

// noteStop tells the relay that the command was stopped. A stop that was not
// yet looked at makes way for a newer one.
func (t *Tree) noteStop(sig syscall.Signal) {
	for {
		select {
		case t.stopped <- sig:
			return
		default:
		}
		select {
		case <-t.stopped:
		default:
		}
	}
}
