package runner

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// request is what the wrapper tells a supervisor; one field of it is set.
// Gob carries it, since arguments and environment need not be UTF-8.
type request struct {
	Start  *spec
	Signal syscall.Signal
	End    *endRequest
}

type endRequest struct{ Grace time.Duration }

// report is what a supervisor tells the wrapper.
type report struct {
	Event     event
	PID       int                // started
	Errno     syscall.Errno      // failed
	Message   string             // failed
	Status    syscall.WaitStatus // stopped, exited
	Survivors []Survivor         // surviving
}

type event int

const (
	eventReady     event = iota + 1 // the supervisor runs, nothing else yet
	eventStarted                    // the command runs
	eventFailed                     // the command could not be started
	eventStopped                    // the command was stopped by a signal
	eventExited                     // the command itself has ended
	eventSurviving                  // SIGKILL does not end what is left
	eventEmpty                      // the kernel says that no descendant is left
)

// peer is one end of the socket between the wrapper and a supervisor. The
// socket also tells each side, by its end, that the other one is gone.
type peer struct {
	file    *os.File
	decoder *gob.Decoder

	mu      sync.Mutex
	encoder *gob.Encoder
}

func newPeer(file *os.File) *peer {
	return &peer{file: file, decoder: gob.NewDecoder(file), encoder: gob.NewEncoder(file)}
}

func (p *peer) send(message any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.encoder.Encode(message)
}

// socketPair gives the wrapper's end and the one for a supervisor. Both close
// on exec: an end that some other child of the wrapper kept open would hide the
// wrapper's death.
func socketPair(name string) (here *peer, there *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the socket to the %s supervisor: %w", name, err)
	}
	return newPeer(os.NewFile(uintptr(fds[0]), name)), os.NewFile(uintptr(fds[1]), name+" (far end)"), nil
}

// inheritedPeer is the supervisor's end, on a descriptor that it was started
// with. From here on it closes on exec, so that the command never has it.
func inheritedPeer(fd int) (*peer, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("take over the socket to the wrapper: %w", err)
	}
	file := os.NewFile(uintptr(fd), "wrapper")
	if file == nil {
		return nil, errors.New("take over the socket to the wrapper: no such descriptor")
	}
	return newPeer(file), nil
}
