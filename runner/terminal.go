package runner

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. All methods work on nil,
// which is none.
type terminal struct {
	file  *os.File
	home  int // this process's group, which gets the terminal back
	modes *unix.Termios
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	modes, err := unix.IoctlGetTermios(int(file.Fd()), ioctlGetTermios)
	if err != nil {
		_ = file.Close()
		return nil
	}
	return &terminal{file: file, home: unix.Getpgrp(), modes: modes}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

// isForeground tells whether this process's group has the terminal.
func (t *terminal) isForeground() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == t.home
}

// give makes a group the foreground group.
func (t *terminal) give(group int) bool {
	return t != nil && t.setGroup(group) == nil
}

// takeBack makes this process's group the foreground group again, in the modes
// that the terminal had at first: a full-screen program that was killed, or
// stopped, leaves others.
func (t *terminal) takeBack() {
	if t == nil {
		return
	}
	if t.setGroup(t.home) == nil {
		_ = unix.IoctlSetTermios(int(t.file.Fd()), ioctlSetTermios, t.modes)
	}
}

func (t *terminal) setGroup(group int) error {
	return withoutTTOU(func() error {
		return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
	})
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), ioctlGetTermios)
	return err == nil
}
