package authority

import (
	"context"
	"errors"
	"fmt"

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
// recorded.
func (s *Service) Explain(ctx context.Context, by Principal, in ReserveInput) (Explanation, error) {
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
	return explain(decide(queued.answered())), nil
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
