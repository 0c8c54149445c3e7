package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	client "berth/clients/go"
)

// Interruption is why something that was begun is not carried on: a signal asked
// for the end, or somebody by the service, which then counts as SIGTERM.
type Interruption struct {
	Signal syscall.Signal
	Reason string // of who asked by the service, else empty
}

func (e *Interruption) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("the run was asked to end, because %q", e.Reason)
	}
	return "interrupted (" + e.Signal.String() + ")"
}

// RefusedError says that the workspace was not granted. The command did not run.
type RefusedError struct{ Refusal *Refusal }

func (e *RefusedError) Error() string {
	text := "the workspace was not granted: " + e.Refusal.Error()
	if holder := holderIn(e.Refusal.Problem.Details); holder != "" {
		text += "\n" + holder
	}
	return text
}

func (e *RefusedError) Unwrap() error { return e.Refusal }

// holder is who has the workspace, in the details of a refusal.
type holder struct {
	RunID         string     `json:"runId"`
	IssueID       *string    `json:"issueId"`
	Epoch         int64      `json:"epoch"`
	Since         time.Time  `json:"since"`
	RunStatus     string     `json:"runStatus"`
	LastRenewedAt *time.Time `json:"lastRenewedAt"`
}

func holderIn(details map[string]any) string {
	var d struct {
		Holder *holder `json:"holder"`
	}
	if !detailsInto(details, &d) || d.Holder == nil {
		return ""
	}
	h := d.Holder
	text := fmt.Sprintf("  held by run %s (%s)", plain(h.RunID), plain(h.RunStatus))
	if h.IssueID != nil {
		text += " of task " + plain(*h.IssueID)
	}
	text += fmt.Sprintf(" at epoch %d, since %s", h.Epoch, h.Since.UTC().Format(time.RFC3339))
	if h.LastRenewedAt != nil {
		text += ", last heard of at " + h.LastRenewedAt.UTC().Format(time.RFC3339)
	}
	return text
}

// NextStep is what a person can do about the refusal.
func (e *RefusedError) NextStep() string {
	p := e.Refusal.Problem
	var d struct {
		State string `json:"state"`
	}
	detailsInto(p.Details, &d)
	switch {
	case p.Code == codeWriterPending && (d.State == "writer_running" || d.State == "writer_silent"):
		return "wait in line with --wait 10m; if that run is gone for good, an operator can use berth takeover"
	case p.Code == codeWriterPending && d.State == "others_wait":
		return "wait in line with --wait 10m"
	case p.Code == codeWriterPending && d.State == "writer_ended_dirty":
		return "berth recover --dir DIR saves the work where that run left it; without it an operator can use berth takeover"
	case p.Code == codeWriterPending:
		return "berth explain says what would free the workspace; an operator can use berth takeover"
	case p.Code == "workspace_ownership_changed":
		return "reopen the workspace, or choose another for the task"
	case p.Code == "pending_selection_stale":
		return "choose the task's workspace again"
	case p.Code == "task_run_active":
		return "try again when the task's other run has ended"
	default:
		return "berth explain says what a reservation needs"
	}
}

// LostError says that the run is not the writer any more, or that the service no
// longer takes it for that.
type LostError struct{ Refusal *Refusal }

func (e *LostError) Error() string {
	p := e.Refusal.Problem
	var d struct {
		EndedAt time.Time `json:"endedAt"`
		How     string    `json:"how"`
		By      string    `json:"by"`
		Reason  *string   `json:"reason"`
	}
	if p.Code != codeTenureEnded || !detailsInto(p.Details, &d) || d.How == "" {
		return "the service no longer takes the run for the writer of the workspace: " + e.Refusal.Error()
	}
	text := fmt.Sprintf("the run no longer holds the workspace since %s: %s by %s",
		d.EndedAt.UTC().Format(time.RFC3339), plain(d.How), plain(d.By))
	if d.Reason != nil {
		text += fmt.Sprintf(", because %q", *d.Reason)
	}
	return text + " (" + codeTenureEnded + ")"
}

func (e *LostError) Unwrap() error { return e.Refusal }

// UnsavedError says that the command ran, and that what it did is nowhere but in
// the directory.
type UnsavedError struct {
	Dir string
	// TokenFile has the run's token, for a save by hand; empty when a save by hand
	// would be refused, too.
	TokenFile string
	// Status is how the run is to end once the work is saved.
	Status client.RunStatus
	Err    error
}

func (e *UnsavedError) Error() string {
	return fmt.Sprintf("the work is not saved: %v\n  it is where it was, in %s", e.Err, e.Dir)
}

func (e *UnsavedError) Unwrap() error { return e.Err }

// NextStep is how to save the work by hand, or what else can be done.
func (e *UnsavedError) NextStep() string {
	if e.TokenFile == "" {
		return fmt.Sprintf("nobody else sees the work: copy what you need out of %s", e.Dir)
	}
	return "the run still holds the workspace, so nobody else gets in. Once the cause is mended:\n" +
		byHand(e.TokenFile, "save", e.Dir) + "\n" + byHand(e.TokenFile, "release", e.Dir) + " --finish " + string(e.Status) + "\n" +
		"Once the run counts as ended an operator saves it: berth recover --dir " + shellQuote(e.Dir)
}

// byHand is a command line for a person who goes on where a run had to stop.
func byHand(tokenFile, command, dir string) string {
	return fmt.Sprintf("  BERTH_TOKEN=$(cat %s) berth %s --dir %s", shellQuote(tokenFile), command, shellQuote(dir))
}

// exitCodeOf is what the wrapper exits with for an error of Run.
func exitCodeOf(err error) int {
	var (
		unsaved     *UnsavedError
		refused     *RefusedError
		start       *StartError
		interrupted *Interruption
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unsaved):
		return ExitUnsaved
	case errors.As(err, &refused):
		return ExitRefused
	case errors.As(err, &start):
		return start.Code
	case errors.As(err, &interrupted):
		return signalCode(interrupted.Signal)
	default:
		return ExitFailed
	}
}

func signalCode(sig syscall.Signal) int { return 128 + int(sig) }

// exitCode is the wrapper's when the work was saved: the command's own, except
// that an end on request is never reported as 0.
func (e Exit) exitCode() int {
	switch {
	case e.Code == 0 && e.Passed != 0:
		return signalCode(e.Passed)
	case e.Code == 0 && e.Ended != "":
		return signalCode(syscall.SIGTERM)
	default:
		return e.Code
	}
}

// runStatus is how the run is finished.
func (e Exit) runStatus() client.RunStatus {
	switch {
	case e.Passed != 0 || e.Ended != "" || asksForTheEnd(e.Signal):
		return client.RunStatusInterrupted
	case e.Code == 0:
		return client.RunStatusSucceeded
	default:
		return client.RunStatusFailed
	}
}

// asksForTheEnd tells whether a signal is one by which people and supervisors ask
// a program to end.
func asksForTheEnd(sig os.Signal) bool {
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		return true
	}
	return false
}

// detailsInto reads the details of a refusal, as far as this program knows them.
func detailsInto(details map[string]any, into any) bool {
	raw, err := json.Marshal(details)
	return err == nil && json.Unmarshal(raw, into) == nil
}
