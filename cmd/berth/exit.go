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

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
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
	fmt.Fprintf(stderr, "berth: %v\n", err)
	var (
		usage usageError
		coded *exitError
		led   interface{ NextStep() string }
	)
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "Try: %s --help\n", commandPath(parsed))
		return exitUsage
	}
	if errors.As(err, &led) && led.NextStep() != "" {
		fmt.Fprintf(stderr, "Next: %s\n", led.NextStep())
	}
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitFailed
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
