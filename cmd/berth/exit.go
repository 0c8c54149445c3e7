package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// Exit codes. Scripts rely on them: they are part of what `berth --help` says.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2

	exitRefused = 73 // the reservation was refused
	exitUnsaved = 75 // the work is not saved, and is where it was
)

// exitError is an error with an exit code of its own. Without an error in it,
// what there was to say has been said.
type exitError struct {
	error
	code int
}

func (e *exitError) Error() string {
	if e.error == nil {
		return ""
	}
	return e.error.Error()
}

func (e *exitError) Unwrap() error { return e.error }

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// report says what went wrong and how to go on, and returns the exit code.
// parsed is how far the command line was understood.
func report(stderr io.Writer, parsed *kong.Context, err error) int {
	if err == nil {
		return exitOK
	}
	var (
		usage usageError
		coded *exitError
	)
	errors.As(err, &coded)
	if text := err.Error(); text != "" {
		fmt.Fprintf(stderr, "berth: %s\n", text)
	}
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "Try: %s --help\n", commandPath(parsed))
		return exitUsage
	}
	if next := nextStep(err); next != "" {
		fmt.Fprintf(stderr, "Next: %s\n", next)
	}
	if coded != nil {
		return coded.code
	}
	return exitFailed
}

// nextStep is the way out that an error names, or "".
func nextStep(err error) string {
	var led interface{ NextStep() string }
	if errors.As(err, &led) {
		return led.NextStep()
	}
	return ""
}

// commandPath is the part of the command line that names the command.
func commandPath(parsed *kong.Context) string {
	if parsed != nil {
		if node := parsed.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "berth"
}
