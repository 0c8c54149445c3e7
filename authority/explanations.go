package authority

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"berth/db"
)

// Explanation is what a reservation would be answered now. Code is nil when it would be granted.
// NextActions are the operation ids of the calls that lead on from there.
type Explanation struct {
	Reservable  bool
	Code        *Code
	Detail      string
	Details     any
	NextActions []string
}

// Explain answers what Reserve would, from the same decision; nothing is locked, changed or
// recorded. Without a RunID a run asks for itself, and everybody else for a run of the task that would begin now, of
// an agent that may read the workspace.
func (s *Service) Explain(ctx context.Context, by Principal, in ReserveInput) (Explanation, error) {
	if in.RunID == uuid.Nil {
		in.RunID = by.RunID
	}
	company, err := s.companyOfIssue(ctx, by, in.IssueID)
	if errors.Is(err, ErrIssueNotFound) {
		return explain(refuse(ErrIssueNotFound)), nil
	}
	if err != nil {
		return Explanation{}, err
	}
	var reads db.Pipeline
	queued := queueReservationReads(&reads, s.asking(company, by, in))
	if err := reads.Run(ctx, s.pool); err != nil {
		return Explanation{}, fmt.Errorf("read the facts of a reservation: %w", err)
	}
	facts := queued.answered()
	if in.RunID == uuid.Nil {
		facts = facts.ofNewRun()
	}
	return explain(decide(facts)), nil
}

// ofNewRun are the facts as they would be for a run that begins now.
func (f reservationFacts) ofNewRun() reservationFacts {
	if f.found.IssueID == nil {
		return f
	}
	running, agent := runRunning, uuid.Nil
	if f.asked.AgentID != nil {
		agent = *f.asked.AgentID
	}
	f.found.RunID, f.found.RunStatus, f.found.RunAgentID, f.found.RunIssueID = &f.asked.RunID, &running, &agent, f.found.IssueID
	f.found.ReadableByAgent = true
	return f
}

func explain(v verdict) Explanation {
	if v.refusal == nil {
		detail := map[grant]string{
			grantReplay:   "The run is the writer.",
			grantFree:     "Nobody is the writer.",
			grantHandover: "The writer ended with nothing unsaved, and is proven stopped.",
			grantCreate:   "The task has no workspace and would get one.",
		}[v.grant]
		return Explanation{Reservable: true, Detail: detail, NextActions: []string{"reserveWorkspace"}}
	}
	r := jittered(v.refusal)
	return Explanation{Code: &r.Code, Detail: r.Detail, Details: r.Details, NextActions: nextActions(r)}
}

// nextActions names, by operation id, the calls that lead on from a refusal, the mildest first. Some are
// for operators alone.
func nextActions(r *Refusal) []string {
	if details, ok := r.Details.(WriterPending); ok {
		if asked := details.Stop; details.State == "writer_running" && asked != nil && asked.State != "requested" {
			return append([]string{}, overdueActions...)
		}
		return append([]string{}, pendingActions[details.State]...)
	}
	return append([]string{}, refusedActions[r.Code]...)
}

// pendingActions are the ways on from an unfinished writer, by its state.
var pendingActions = map[string][]string{
	"writer_running":        {"reserveWorkspace", "listReservationQueue", "requestStop", "takeOverWorkspace"},
	"writer_silent":         {"reserveWorkspace", "listReservationQueue", "requestStop", "updateHeartbeatRun", "takeOverWorkspace"},
	"writer_ended_dirty":    {"recordTerminationReceipt", "createRecoveryToken", "takeOverWorkspace"},
	"writer_ended_unproven": {"recordTerminationReceipt", "takeOverWorkspace"},
	"others_wait":           {"reserveWorkspace", "listReservationQueue", "leaveReservationQueue"},
}

// overdueActions are the ways on from a writer that goes on beyond the time until which it was asked to stop. What it
// did not save is kept when its run is marked as ended, for a recovery; a takeover gives it up.
var overdueActions = []string{"reserveWorkspace", "listReservationQueue", "updateHeartbeatRun", "takeOverWorkspace"}

// refusedActions are the ways on from every other refusal of a reservation.
var refusedActions = map[Code][]string{
	ErrIssueNotFound.Code:            {"listIssues"},
	ErrRunNotFound.Code:              {"createHeartbeatRun"},
	ErrAgentNotFound.Code:            {"listAgents"},
	ErrEnvironmentNotFound.Code:      {"listEnvironments"},
	ErrProjectNotFound.Code:          {"listProjects"},
	ErrProjectWorkspaceNotFound.Code: {"listProjectWorkspaces"},
	ErrRunIdentity.Code:              {"createHeartbeatRun"},
	ErrWorkspaceMissing.Code:         {"getTaskWorkspace", "selectWorkspace"},
	ErrBinding.Code:                  {"getTaskWorkspace", "selectWorkspace", "applySelection"},
	ErrWorkspaceAccess.Code:          {"selectWorkspace", "addAccessGrant"},
	ErrOwnershipChanged.Code:         {"updateExecutionWorkspace", "selectWorkspace"},
	ErrSourceMismatch.Code:           {"getTaskWorkspace"},
	ErrSourceUnsupported.Code:        {"reserveWorkspace", "createExecutionWorkspace"},
	ErrStaleEpoch.Code:               {"getTaskWorkspace"},
	ErrRunHoldsWorkspace.Code:        {"releaseWorkspace", "createHeartbeatRun"},
	ErrEpochExhausted.Code:           {"createExecutionWorkspace", "selectWorkspace"},
}
