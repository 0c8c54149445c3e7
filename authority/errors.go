package authority

import (
	"errors"
	"fmt"
	"slices"

	"berth/db"
)

// Code is the stable name of a refusal. Callers branch on it; the text beside it may change.
type Code string

// Refusal is an answer that the rules give instead of what was asked for. It compares equal, by
// errors.Is, to the sentinel of its code.
type Refusal struct {
	Code    Code
	Detail  string         // one sentence for people, with the way out
	Details any            // what the code's documentation promises, or nil
	Fields  []FieldProblem // for ErrValidation: what is wrong where
}

// FieldProblem says what is wrong with one input. Location is where it came from, such as
// "body.name" or "query.cursor".
type FieldProblem struct {
	Location string
	Message  string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Detail) }

// Is reports whether target is a refusal with the same code.
func (r *Refusal) Is(target error) bool {
	var other *Refusal
	return errors.As(target, &other) && other.Code == r.Code
}

// With returns the refusal with details.
func (r *Refusal) With(details any) *Refusal {
	c := *r
	c.Details = details
	return &c
}

// Say returns the refusal with another sentence for people.
func (r *Refusal) Say(format string, args ...any) *Refusal {
	c := *r
	c.Detail = fmt.Sprintf(format, args...)
	return &c
}

// At returns the refusal with one more problem of a field.
func (r *Refusal) At(location, message string) *Refusal {
	c := *r
	c.Fields = append(slices.Clone(r.Fields), FieldProblem{Location: location, Message: message})
	return &c
}

var codes []Code

// Codes lists the code of every refusal there is.
func Codes() []Code { return slices.Clone(codes) }

func refusal(code Code, detail string) *Refusal {
	codes = append(codes, code)
	return &Refusal{Code: code, Detail: detail}
}

// Who calls, and with what.
var (
	ErrUnauthenticated = refusal("unauthenticated", "A valid bearer token is needed.")
	ErrNotAllowed      = refusal("not_allowed", "This principal may not do that.")
	ErrValidation      = refusal("validation_failed", "The input is not valid; errors names each field.")
	ErrIdempotencyKey  = refusal("idempotency_key_reused", "This Idempotency-Key was used for another request: use a new one.")
	ErrUnavailable     = refusal("unavailable", "The service cannot answer right now; the call is safe to repeat.")
)

// What does not exist for the caller. Nothing tells a foreign id from an unknown one.
var (
	ErrCompanyNotFound          = refusal("company_not_found", "There is no such company.")
	ErrAgentNotFound            = refusal("agent_not_found", "There is no such agent.")
	ErrProjectNotFound          = refusal("project_not_found", "There is no such project.")
	ErrProjectWorkspaceNotFound = refusal("project_workspace_not_found", "There is no such project workspace.")
	ErrEnvironmentNotFound      = refusal("environment_not_found", "There is no such environment.")
	ErrIssueNotFound            = refusal("issue_not_found", "There is no such issue.")
	ErrRunNotFound              = refusal("run_not_found", "There is no such heartbeat run.")
	ErrWorkspaceNotFound        = refusal("workspace_not_found", "There is no such execution workspace.")
	ErrLeaseNotFound            = refusal("lease_not_found", "There is no such environment lease.")
	ErrSnapshotNotFound         = refusal("snapshot_not_found", "There is no such snapshot.")
	ErrTokenNotFound            = refusal("token_not_found", "There is no such token.")
)

// Reserving.
var (
	ErrRunIdentity       = refusal("run_identity_mismatch", "The run is not running, or is not the one that may do this.")
	ErrWorkspaceMissing  = refusal("remote_workspace_missing", "remote_workspace_missing: there is no such workspace for this task.")
	ErrBinding           = refusal("task_workspace_binding_unavailable", "Task workspace binding is unavailable: the task is not bound to that workspace.")
	ErrWorkspaceAccess   = refusal("workspace_access_denied", "The run's agent may not read every task behind this workspace.")
	ErrOwnershipChanged  = refusal("workspace_ownership_changed", "Workspace ownership changed. The workspace is closed.")
	ErrSourceMismatch    = refusal("workspace_source_mismatch", "The workspace was made from another source.")
	ErrSourceUnsupported = refusal("source_kind_unsupported", "Files of this source kind cannot be fetched yet.")
	ErrStaleEpoch        = refusal("stale_epoch", "The epoch is not the current one: read the workspace again.")
	ErrRunHoldsWorkspace = refusal("run_holds_workspace", "The run is the writer of another workspace: it releases that one first.")
	ErrWriterPending     = refusal("remote_workspace_writer_pending", "The workspace has an unfinished writer.")
	ErrEpochExhausted    = refusal("epoch_exhausted", "The workspace has used its last epoch: derive a new workspace from it.")
)

// The life of a tenure.
var (
	ErrTenureEnded        = refusal("tenure_ended", "The run's tenure of this workspace ended.")
	ErrWorkspaceDirty     = refusal("workspace_dirty", "The workspace has unsaved work: save it, or give it up with discard.")
	ErrTakeoverNeedsProof = refusal("takeover_needs_proof", "The writer is not proven stopped: bring the receipts, or take over with acceptRisk.")
	ErrRecoveryNeedsStop  = refusal("recovery_needs_stop", "The writer is not proven stopped: bring the receipts, or recover with acceptRisk.")
	ErrNoWriter           = refusal("no_writer", "The workspace has no writer.")
	ErrWorkspaceInUse     = refusal("workspace_in_use", "The workspace has a writer: it releases first, or an operator takes over.")
	ErrRunFinal           = refusal("run_final", "The run ended with another status, which is final.")
)

// Leases and receipts.
var (
	ErrReceiptRejected = refusal("receipt_rejected", "The receipt does not prove that this lease's machine stopped.")
	ErrLeaseForward    = refusal("lease_forward_only", "The lease is past that status, and a lease goes forward only.")
)

// Snapshots.
var (
	ErrSnapshotSuperseded  = refusal("snapshot_superseded", "The snapshot's parent is no longer the saved state: restore, and save again.")
	ErrSnapshotIncomplete  = refusal("snapshot_incomplete", "The snapshot's content is not there as it was announced: upload it again.")
	ErrSnapshotUnavailable = refusal("snapshot_unavailable", "The snapshot is on record, but its content is not here.")
	ErrSnapshotContent     = refusal("snapshot_content_mismatch", "The content does not have the announced size and sha256.")
	ErrSnapshotNameTaken   = refusal("snapshot_name_taken", "Another snapshot of the workspace has that name: choose another, or take it away there.")
	ErrSnapshotNotPending  = refusal("snapshot_not_pending", "The snapshot takes no content any more.")
)

// Which workspace a task gets.
var (
	ErrSelectionKeyReused    = refusal("selection_key_reused", "This requestKey was used with a different intent: use a new one.")
	ErrBindingChanged        = refusal("binding_changed", "The task's binding changed: read it again.")
	ErrWorkspaceUnavailable  = refusal("workspace_unavailable", "There is no such workspace to choose.")
	ErrPendingSelectionStale = refusal("pending_selection_stale", "The pending selection no longer fits the task: choose again.")
	ErrTaskRunActive         = refusal("task_run_active", "A run of the task is active: wait until it ended.")
)

// constraintRefusals names the refusal for each constraint that a caller's input can meet. What is
// not here is a fault of ours.
var constraintRefusals = map[string]*Refusal{
	"execution_workspaces_run_holds_one":    ErrRunHoldsWorkspace,
	"tenures_one_open_by_run":               ErrRunHoldsWorkspace,
	"tenures_key_once":                      ErrIdempotencyKey,
	"execution_workspaces_epoch_bounds":     ErrEpochExhausted,
	"environment_leases_forward":            ErrLeaseForward,
	"environment_leases_active_open":        ErrValidation.At("body.releasedAt", "an active lease has no releasedAt"),
	"environment_leases_released_after":     ErrValidation.At("body.releasedAt", "is before the lease was acquired"),
	"heartbeat_runs_terminal_final":         ErrRunFinal,
	"companies_issue_prefix_key":            ErrValidation.At("body.issuePrefix", "is taken: choose another prefix"),
	"snapshots_name_once":                   ErrSnapshotNameTaken,
	"snapshots_pkey":                        ErrValidation.At("body.authority.snapshotId", "is on record already"),
	"termination_receipts_after_acquired":   ErrReceiptRejected,
	"termination_receipts_lease_fkey":       ErrReceiptRejected,
	"execution_workspaces_dirty_has_writer": ErrValidation.At("body.authority.dirty", "a dirty workspace needs a writer"),
}

// AsRefusal finds the refusal in err: one that the rules gave, one that a named constraint stands
// for, or ErrUnavailable when the database is out of reach. Any other error is a fault.
func AsRefusal(err error) (*Refusal, bool) {
	var r *Refusal
	if errors.As(err, &r) {
		return r, true
	}
	if r, ok := constraintRefusals[db.ConstraintName(err)]; ok {
		return r, true
	}
	if db.IsUnavailable(err) {
		return ErrUnavailable, true
	}
	return nil, false
}
