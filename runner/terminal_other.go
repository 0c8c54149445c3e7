//go:build unix && !linux

package runner

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	ioctlGetTermios = unix.TIOCGETA
	ioctlSetTermios = unix.TIOCSETA
)

// stopOwnGroup stops this process and asks the rest of its group to stop, with a
// terminal's stop signal, which this process must be ignoring. It returns when
// this process is continued; at once when nobody is there who would do that.
func stopOwnGroup(sig syscall.Signal) {
	parent := unix.Getppid()
	theirs, err := unix.Getsid(parent)
	if own, ownErr := unix.Getsid(0); err != nil || ownErr != nil || own != theirs {
		return
	}
	_ = unix.Kill(0, sig)
	// Once a Go program has caught SIGTSTP, its default action is gone for good.
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
}

// withoutTTOU does something that, from a background group, would stop this
// process.
func withoutTTOU(do func() error) error {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	return do()
}
