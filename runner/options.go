package runner

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// Options say what Run is to do, where, and for whom.
type Options struct {
	// URL is where the service is.
	URL string
	// Token is an operator's or a member's, by which the run is created. All that
	// follows goes by the run's own, and the command sees only that.
	Token string
	// HTTP makes the calls; nil is a client that suits large transfers.
	HTTP *http.Client

	// IssueID is the task whose workspace is reserved.
	IssueID uuid.UUID
	// AgentID is whose run it is. The zero id means the task's assignee or, where
	// there is none, the only agent of the company.
	AgentID uuid.UUID

	// Dir is where the files go, and where the command runs.
	Dir string
	// Mode is what may be done with files that are in Dir already.
	Mode Mode
	// Command is what runs. Its Dir is filled in; to its Env (this process's own
	// when nil) come the variables that Environment describes.
	Command Command

	// Wait is how long to wait in line for a workspace whose writer is unfinished; zero refuses at once.
	Wait time.Duration
	// Patience is for how long each call that gets no answer is made again, as in
	// a restart of the service; DefaultPatience when zero. Renewals never give up.
	Patience time.Duration
	// Signals are passed on to the command, and interrupt what is before and after
	// it. Nil: only the end of Run's context interrupts.
	Signals *Signals
	// Notices is where Run says, a line each, what a person should know. On a
	// terminal, long transfers show how far they are. Nil is nowhere.
	Notices io.Writer

	pace     pace   // tests scale it
	tokensIn string // where the run's token is kept; the user's own place when empty
}

func (o Options) withDefaults() Options {
	if o.pace == (pace{}) {
		o.pace = normalPace
	}
	if o.Patience > 0 {
		o.pace.patience = o.Patience
	}
	if o.Notices == nil {
		o.Notices = io.Discard
	}
	return o
}

// note tells the person at the terminal something, in a line.
func (o Options) note(format string, args ...any) {
	fmt.Fprintf(o.Notices, "berth: "+format+"\n", args...)
}

// Result is what became of a run.
type Result struct {
	RunID       uuid.UUID
	WorkspaceID uuid.UUID // zero when nothing was reserved
	Epoch       int64
	// Saved is the snapshot of what the command left; nil when there is none.
	Saved *client.Snapshot
	// Released tells that the workspace is free again, and that the run is over.
	Released bool
	// ExitCode is what the wrapper's own should be; 0 only when the command ended
	// with 0 and its work is saved.
	ExitCode int
}

// The exit codes of Run that are not the command's own.
const (
	// ExitFailed: the command did not run, for any reason without a code of its own.
	ExitFailed = 1
	// ExitRefused: the workspace was not granted; the command did not run.
	ExitRefused = 73
	// ExitUnsaved: the command's work is not saved; it is in the directory still.
	ExitUnsaved = 75
)
