package runner

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	ioctlGetTermios = unix.TCGETS
	ioctlSetTermios = unix.TCSETS
)

// stopOwnGroup stops this process and asks the rest of its group to stop, with a
// terminal's stop signal, which this process must be ignoring. It returns when
// this process is continued; at once when nobody is there who would do that.
func stopOwnGroup(sig syscall.Signal) {
	if orphaned() {
		return
	}
	_ = unix.Kill(0, sig)
	// Once a Go program has caught SIGTSTP, its default action is gone for good;
	// SIGSTOP does the same. And a signal to the calling thread takes effect
	// before the call returns, where one to the process could come late.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// orphaned tells whether nobody in this session watches over this process's
// group, as a shell does over its jobs.
func orphaned() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	group := unix.Getpgrp()
	for pid := unix.Getppid(); pid > 1; {
		parent, err := readProcess(pid)
		if err != nil {
			return true
		}
		if parent.group != group {
			theirs, err := unix.Getsid(pid)
			return err != nil || theirs != session
		}
		pid = parent.parent
	}
	return true
}

// withoutTTOU does something that, from a background group, would stop this
// process. Blocking the signal for one thread leaves everything else alone.
func withoutTTOU(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var ttou, before unix.Sigset_t
	ttou.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &ttou, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return do()
}
