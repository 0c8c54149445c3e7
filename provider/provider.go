// Package provider asks those who run machines what became of one: a sandbox service, a webhook of somebody
// else's, or this host itself. It knows no database and no rules. What a provider answers is only words; they become
// a receipt, and so proof, where package authority holds them against the lease.
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// State is what a provider says of a machine, in Berth's words. A word of the provider's that has no place here is
// StateUnknown, which proves nothing.
type State string

// The states of a machine.
const (
	StateRunning   State = "running"
	StateStopped   State = "stopped"   // nothing runs on it any more; its files may still be there
	StateDestroyed State = "destroyed" // it is gone, and its files with it
	StateUnknown   State = "unknown"
)

// Answer is what a provider said about one machine.
type Answer struct {
	// ID is the provider's id of the machine as the provider gave it, never as it was asked for: a receipt rests on
	// their being the same.
	ID string
	// State is what Word means.
	State State
	// Word is the provider's own word for the state, for people.
	Word string
}

// Provider runs machines. Each method answers for the machine with the id of its lease. Stop and Destroy ask for an end
// and may answer before it came: whoever needs to know asks for the state again. Both may be repeated.
//
// An error is an *Error. Its text may hold what the provider sent, credentials too, so it is never logged or stored:
// its Kind is.
type Provider interface {
	State(ctx context.Context, id string) (Answer, error)
	Stop(ctx context.Context, id string) (Answer, error)
	Destroy(ctx context.Context, id string) (Answer, error)
}

// Directory finds the provider of a lease: by the lease's provider name, and the config of its environment.
type Directory interface {
	// For returns ErrUnknownProvider for a name that nobody here serves: such a lease is left alone, and people are told.
	For(name string, environment json.RawMessage) (Provider, error)
}

// ErrUnknownProvider means that this installation cannot ask the provider of that name.
var ErrUnknownProvider = errors.New("no provider of that name is configured here")

// Kind says why a provider gave no answer.
type Kind string

// The kinds of a missing answer.
const (
	KindUnreachable   Kind = "unreachable"  // no connection, or it broke
	KindTimeout       Kind = "timeout"      // no answer in time
	KindUnauthorized  Kind = "unauthorized" // our credentials are not accepted
	KindNotFound      Kind = "not_found"    // the provider knows no machine of that id
	KindRefused       Kind = "refused"      // any other answer that is no success
	KindMalformed     Kind = "malformed"    // an answer that does not read as one
	KindElsewhere     Kind = "elsewhere"    // the machine is another host's, which this one cannot see
	KindMisconfigured Kind = "misconfigured"
)

// Error is a missing answer.
type Error struct {
	Kind  Kind
	Cause error // for the caller's own eyes: never logged, never stored
}

// Error tells the kind alone.
func (e *Error) Error() string { return fmt.Sprintf("the provider gave no answer: %s", e.Kind) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of a provider's error; what is not an *Error is KindRefused.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindRefused
}
