package authority

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

const maximumEpoch = 1<<53 - 1

// verdict is what a decision about a reservation says: a refusal, or how to grant it.
type verdict struct {
	grant    grant
	refusal  *Refusal
	handover *Handover // what the grant takes over from, and tells of
}

// grant is the way in which a reservation is granted.
type grant string

const (
	grantReplay   grant = "replay"   // the run is the writer already: nothing changes
	grantFree     grant = "free"     // nobody is the writer
	grantHandover grant = "handover" // the writer ended, and is proven stopped
	grantCreate   grant = "create"   // the task has no workspace: it gets one
)

func refuse(r *Refusal) verdict { return verdict{refusal: r} }

// Handover tells a new writer whom it follows. Kind is proof or takeover.
type Handover struct {
	Kind        string    `json:"kind"`
	FromRunID   uuid.UUID `json:"fromRunId"`
	FromEpoch   int64     `json:"fromEpoch"`
	Unproven    bool      `json:"unproven"`
	UnsavedWork bool      `json:"unsavedWork"`
}

// WriterPending is the details of ErrWriterPending. State is one of writer_running, writer_silent,
// writer_ended_dirty, writer_ended_unproven and others_wait; callers treat another as: wait.
type WriterPending struct {
	State        string
	Holder       *Holder      // nil when the caller may not read the holder's task
	Stop         *StopPending // the open request to stop the holder, if there is one and the caller may read the holder's task
	MissingProof []MissingProof
	// Position is where the run stands in the workspace's line, or where a newcomer would stand; from 1 on. nil
	// when it does not wait, and nobody does.
	Position   *int64
	RetryAfter time.Duration
}

// StopPending is what the writer that a reservation met was asked. State is that of a StopRequest.
type StopPending struct {
	Reason   string
	Deadline time.Time
	State    string
}

// Holder is the writer that a reservation met.
type Holder struct {
	RunID         uuid.UUID
	IssueID       *uuid.UUID
	Epoch         int64
	Since         time.Time
	RunStatus     string
	LastRenewedAt *time.Time
}

// MissingProof names a machine of a writer that is not proven stopped, and why.
type MissingProof struct {
	LeaseID  uuid.UUID
	Provider string
	Reason   string
}

// TenureEnding is the details of ErrTenureEnded.
type TenureEnding struct {
	EndedAt time.Time
	How     string
	By      string
	Reason  *string
}

// decide answers a reservation from the facts alone. The first rule that applies answers; their
// order is part of the contract.
func decide(f reservationFacts) verdict {
	for _, rule := range []func(reservationFacts) *Refusal{
		unknownReference, wrongRun, endedKey, unknownWorkspace, unboundWorkspace,
	} {
		if r := rule(f); r != nil {
			return refuse(r)
		}
	}
	w := f.found
	if !w.ReadableByAgent {
		return refuse(ErrWorkspaceAccess)
	}
	if w.WorkspaceID == nil {
		return decideNewWorkspace(f)
	}
	if w.WriterRunID != nil && *w.WriterRunID == f.asked.RunID {
		return verdict{grant: grantReplay, handover: handoverOf(w.TenureHandover)}
	}
	for _, rule := range []func(reservationFacts) *Refusal{closedWorkspace, otherSource, otherEpoch, holdsAnother} {
		if r := rule(f); r != nil {
			return refuse(r)
		}
	}
	if *w.WorkspaceEpoch >= maximumEpoch {
		return refuse(ErrEpochExhausted)
	}
	v := verdict{grant: grantFree, handover: takeoverBefore(f)}
	if w.WriterRunID != nil {
		v = decideOverWriter(f)
	}
	if v.refusal == nil && w.OthersFirst {
		return refuse(writerPending(f, "others_wait"))
	}
	return v
}

func decideNewWorkspace(f reservationFacts) verdict {
	switch {
	case f.asked.Source != nil && !fetchable(f.asked.Source):
		return refuse(ErrSourceUnsupported)
	case f.asked.ExpectedEpoch != nil && *f.asked.ExpectedEpoch != 0:
		return refuse(ErrStaleEpoch)
	case f.found.HeldWorkspaceID != nil:
		return refuse(ErrRunHoldsWorkspace)
	}
	return verdict{grant: grantCreate}
}

// decideOverWriter: somebody else is the writer. Not heard of is not stopped, and marked as ended
// is not either.
func decideOverWriter(f reservationFacts) verdict {
	switch {
	case f.found.WriterFinishedAt == nil && f.found.WriterSilent:
		return refuse(writerPending(f, "writer_silent"))
	case f.found.WriterFinishedAt == nil:
		return refuse(writerPending(f, "writer_running"))
	case *f.found.WorkspaceDirty:
		return refuse(writerPending(f, "writer_ended_dirty"))
	case !provenStopped(f.leases):
		return refuse(writerPending(f, "writer_ended_unproven"))
	}
	return verdict{grant: grantHandover, handover: &Handover{
		Kind: "proof", FromRunID: *f.found.WriterRunID, FromEpoch: *f.found.WorkspaceEpoch,
	}}
}

func unknownReference(f reservationFacts) *Refusal {
	w, in := f.found, f.asked
	switch {
	case w.IssueID == nil || !w.IssueReadable:
		return ErrIssueNotFound
	case w.RunID == nil:
		return ErrRunNotFound
	case in.AgentID != nil && !w.AgentExists:
		return ErrAgentNotFound
	case in.EnvironmentID != nil && !w.EnvironmentExists:
		return ErrEnvironmentNotFound
	case in.ProjectID != nil && !w.ProjectExists:
		return ErrProjectNotFound
	case in.ProjectWorkspaceID != nil && !w.ProjectWorkspaceExists:
		return ErrProjectWorkspaceNotFound
	}
	return nil
}

func wrongRun(f reservationFacts) *Refusal {
	w, in := f.found, f.asked
	switch {
	case f.by.Role == RoleRun && f.by.RunID != in.RunID:
		return ErrRunIdentity.Say("The token is another run's: a run reserves for itself.")
	case *w.RunStatus != "running":
		return ErrRunIdentity.Say("The run is %s, and only a running one may reserve.", *w.RunStatus)
	case in.AgentID != nil && *in.AgentID != *w.RunAgentID:
		return ErrRunIdentity.Say("The run is another agent's.")
	case w.RunIssueID == nil || *w.RunIssueID != in.IssueID:
		return ErrRunIdentity.Say("The run is for another task.")
	}
	return nil
}

// endedKey: a key stands for one tenure. While it lives the key answers it again, by the rule for a
// run that is the writer; afterwards it never begins a second.
func endedKey(f reservationFacts) *Refusal {
	w := f.found
	switch {
	case w.KeyedTenureID == nil:
		return nil
	case !bytes.Equal(w.KeyedDigest, f.once.Digest):
		return ErrIdempotencyKey
	case w.KeyedEndedAt != nil:
		return ErrTenureEnded.
			Say("The reservation of this Idempotency-Key ended: reserve again under a new key.").
			With(TenureEnding{EndedAt: *w.KeyedEndedAt, How: *w.KeyedEndedHow, By: *w.KeyedEndedBy, Reason: w.KeyedEndedReason})
	}
	return nil
}

func unknownWorkspace(f reservationFacts) *Refusal {
	asked, bound := f.asked.ExistingWorkspaceID, f.found.WorkspaceID
	if asked == nil || (bound != nil && *bound == *asked) || f.found.AskedWorkspaceReadable {
		return nil
	}
	return ErrWorkspaceMissing
}

func unboundWorkspace(f reservationFacts) *Refusal {
	asked, bound := f.asked.ExistingWorkspaceID, f.found.WorkspaceID
	if asked == nil || (bound != nil && *bound == *asked) {
		return nil
	}
	return ErrBinding
}

func closedWorkspace(f reservationFacts) *Refusal {
	if closedStatus(*f.found.WorkspaceStatus) {
		return ErrOwnershipChanged.Say("Workspace ownership changed. The workspace is %s: reopen it, or choose another.", *f.found.WorkspaceStatus)
	}
	return nil
}

func otherSource(f reservationFacts) *Refusal {
	if f.asked.Source != nil && !f.found.WorkspaceSourceMatches {
		return ErrSourceMismatch
	}
	return nil
}

func otherEpoch(f reservationFacts) *Refusal {
	if e := f.asked.ExpectedEpoch; e != nil && *e != *f.found.WorkspaceEpoch {
		return ErrStaleEpoch.Say("The workspace is at epoch %d: expectedEpoch says otherwise.", *f.found.WorkspaceEpoch)
	}
	return nil
}

func holdsAnother(f reservationFacts) *Refusal {
	if held := f.found.HeldWorkspaceID; held != nil && *held != *f.found.WorkspaceID {
		return ErrRunHoldsWorkspace
	}
	return nil
}

// pendingText begins as every answer about an unfinished writer does, and goes on with the way out.
var pendingText = map[string]string{
	"writer_running":        "The workspace has an unfinished writer: its run goes on. Wait until it released, or an operator asks it to stop.",
	"writer_silent":         "The workspace has an unfinished writer, and nothing was heard of it for some time, which does not mean that it stopped. An operator asks it to stop, or takes over.",
	"writer_ended_dirty":    "The workspace has an unfinished writer: its run ended with unsaved work. An operator saves the work in its name, or takes over.",
	"writer_ended_unproven": "The workspace has an unfinished writer: its run ended, but not every machine of it is proven stopped. Bring the missing receipts, or an operator takes over.",
	"others_wait":           "Others wait for the workspace, after its unfinished writer, and come first. Wait in line by waitSeconds.",
}

func writerPending(f reservationFacts, state string) *Refusal {
	w := f.found
	details := WriterPending{State: state, MissingProof: []MissingProof{}, RetryAfter: 5 * time.Second}
	if w.PlaceID != nil || w.PlacePosition > 1 {
		details.Position = &w.PlacePosition
	}
	if w.HolderReadable && w.TenureID != nil {
		details.Holder = &Holder{
			RunID: *w.WriterRunID, IssueID: w.TenureIssueID, Epoch: *w.WorkspaceEpoch,
			Since: *w.TenureStartedAt, RunStatus: *w.WriterStatus, LastRenewedAt: w.WriterLastRenewedAt,
		}
		if w.StopReason != nil {
			details.Stop = &StopPending{Reason: *w.StopReason, Deadline: *w.StopDeadline, State: *w.StopState}
		}
	}
	if state != "writer_running" && state != "others_wait" {
		details.MissingProof = missingProof(f.leases)
	}
	return ErrWriterPending.Say("%s", pendingText[state]).With(details)
}

// takeoverBefore tells of a takeover that ended the tenure right before this one.
func takeoverBefore(f reservationFacts) *Handover {
	w := f.found
	if w.LastEndedHow == nil || *w.LastEndedHow != "takeover" {
		return nil
	}
	return &Handover{
		Kind: "takeover", FromRunID: *w.LastRunID, FromEpoch: *w.LastEpoch,
		Unproven: *w.LastUnproven, UnsavedWork: *w.LastUnsavedWork,
	}
}

func handoverOf(document json.RawMessage) *Handover {
	if document == nil {
		return nil
	}
	var h Handover
	if json.Unmarshal(document, &h) != nil {
		return nil
	}
	return &h
}

// fetchable reports whether Berth can provide the files of a source. What it cannot fetch is
// refused, since an empty tree in its place would look like lost work.
func fetchable(source json.RawMessage) bool {
	var s struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(source, &s) == nil && s.Kind == "empty"
}

func closedStatus(status string) bool { return status == "archived" || status == "cleanup_failed" }
