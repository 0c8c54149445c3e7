package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"berth/db"
)

// ReserveInput asks for the workspace of a task, for a run. Without ExistingWorkspaceID it is the
// one that the task is bound to; a task with none gets a new one. EnvironmentID, ProjectID and
// ProjectWorkspaceID describe such a new one. Source and ExpectedEpoch, when given, must be the
// workspace's.
type ReserveInput struct {
	IssueID             uuid.UUID
	RunID               uuid.UUID
	AgentID             *uuid.UUID
	EnvironmentID       *uuid.UUID
	ProjectID           *uuid.UUID
	ProjectWorkspaceID  *uuid.UUID
	ExistingWorkspaceID *uuid.UUID
	Source              json.RawMessage
	ExpectedEpoch       *int64
	WaitSeconds         int // 0; waiting is not there yet, and says so
}

// Reservation is a granted one. Replayed is true when the run was the writer already, and nothing
// changed. Handover is nil, or tells whom the run follows.
type Reservation struct {
	Workspace Workspace
	Replayed  bool
	Handover  *Handover
}

// Explanation is what a reservation would be answered now. Code is nil when it would be granted.
type Explanation struct {
	Reservable  bool
	Code        *Code
	Detail      string
	Details     any
	NextActions []string
}

// reserveTries bounds how often a reservation decides again because another was faster.
const reserveTries = 3

// Reserve makes the run the writer of its task's workspace, at the next epoch. Every refusal of the
// table of outcomes is possible; after one the workspace is as it was. With a key in once the
// reservation is for one tenure: while it lives the same answer comes again, and afterwards
// ErrTenureEnded.
func (s *Service) Reserve(ctx context.Context, by Principal, in ReserveInput, once Once) (Reservation, error) {
	if by.Role != RoleRun && by.Role != RoleOperator {
		return Reservation{}, s.refuseToReserve(ctx, by, in)
	}
	if in.WaitSeconds != 0 {
		return Reservation{}, ErrValidation.At("body.waitSeconds",
			"waiting is not there yet: leave it out, and ask again after retryAfterMs")
	}
	company, err := s.companyOfIssue(ctx, by, in.IssueID)
	if err != nil {
		return Reservation{}, err
	}
	asking := reservationFacts{company: company, by: by, asked: in, once: once}
	for range reserveTries {
		var reservation Reservation
		var decided bool
		err := db.Retry(ctx, func() (err error) {
			reservation, decided, err = s.tryReserve(ctx, asking)
			return err
		})
		if decided || err != nil {
			return reservation, err
		}
	}
	return Reservation{}, ErrUnavailable.Say("Others kept changing the workspace; the call is safe to repeat.")
}

// refuseToReserve answers those who may read a task but reserve nothing.
func (s *Service) refuseToReserve(ctx context.Context, by Principal, in ReserveInput) error {
	if _, err := s.readableIssue(ctx, s.pool, by, in.IssueID); err != nil {
		return err
	}
	return ErrNotAllowed.Say("A run reserves, with its own token, or an operator for it.")
}

// tryReserve locks, reads, decides and acts, in three round trips to the database. It reports false
// when another transaction came between, which the locks leave room for only where the task has no
// workspace yet.
func (s *Service) tryReserve(ctx context.Context, asking reservationFacts) (Reservation, bool, error) {
	var reads db.Pipeline
	queueReservationLocks(&reads, asking)
	queued := queueReservationReads(&reads, asking)
	tx, err := db.BeginReading(ctx, s.pool, &reads)
	if err != nil {
		return Reservation{}, false, fmt.Errorf("read the facts of a reservation: %w", err)
	}
	facts := queued.answered()
	v := decide(facts)
	switch {
	case v.refusal != nil:
		return Reservation{}, true, s.recordRefusal(ctx, tx, facts, v.refusal)
	case v.grant == grantReplay:
		workspace, err := s.queries.GetWorkspace(ctx, tx.DB(), db.GetWorkspaceParams{CompanyID: facts.company, WorkspaceID: *facts.found.WorkspaceID})
		if endErr := tx.Rollback(ctx); err == nil {
			err = endErr
		}
		return Reservation{Workspace: workspaceOf(workspace), Replayed: true, Handover: v.handover}, true, err
	case v.grant == grantCreate:
		if err := tx.Rollback(ctx); err != nil {
			return Reservation{}, false, err
		}
		return s.reserveNew(ctx, facts)
	}
	var acts db.Pipeline
	workspace := queueGrant(&acts, facts, v)
	if err := tx.CommitAfter(ctx, &acts); err != nil {
		return Reservation{}, false, fmt.Errorf("reserve: %w", err)
	}
	granted := db.First(workspace)
	if granted == nil {
		return Reservation{}, false, nil
	}
	return Reservation{Workspace: workspaceOf(*granted), Handover: v.handover}, true, nil
}

// queueGrant queues the guarded change of the workspace with the tenures that it ends and begins.
// When the guard finds the row changed, neither tenure finds its writer, and nothing happens.
func queueGrant(acts *db.Pipeline, f reservationFacts, v verdict) *[]db.ExecutionWorkspace {
	w, company, id, epoch := f.found, f.company, *f.found.WorkspaceID, *f.found.WorkspaceEpoch
	var reserved *[]db.ExecutionWorkspace
	if v.grant == grantHandover {
		reserved = db.HandOverWorkspaceStatement.Rows(acts, db.HandOverWorkspaceParams{
			RunID: f.asked.RunID, CompanyID: company, WorkspaceID: id, Epoch: epoch,
			FromRunID: *w.WriterRunID, LifecycleGeneration: *w.WorkspaceLifecycleGeneration,
		})
		db.CloseTenureStatement.Rows(acts, db.CloseTenureParams{
			EndedHow: "handover", EndedBy: f.by.Actor(), Proof: proofDocument(f.leases),
			CompanyID: company, WorkspaceID: id, Epoch: epoch, RunID: *w.WriterRunID,
		})
	} else {
		reserved = db.ReserveWorkspaceStatement.Rows(acts, db.ReserveWorkspaceParams{
			RunID: f.asked.RunID, CompanyID: company, WorkspaceID: id, Epoch: epoch,
			LifecycleGeneration: *w.WorkspaceLifecycleGeneration,
		})
	}
	db.OpenTenureStatement.Rows(acts, f.tenure(id, epoch+1, v.handover))
	return reserved
}

// tenure is the one that a grant begins.
func (f reservationFacts) tenure(workspace uuid.UUID, epoch int64, handover *Handover) db.OpenTenureParams {
	params := db.OpenTenureParams{
		ID: newID(), CompanyID: f.company, WorkspaceID: workspace, Epoch: epoch,
		RunID: f.asked.RunID, IssueID: &f.asked.IssueID, StartedBy: f.by.Actor(),
	}
	if handover != nil {
		params.Handover, _ = json.Marshal(handover) // plain fields always marshal
	}
	if f.once.Key != "" {
		actor := f.by.Actor()
		params.ReservationPrincipal, params.ReservationKey, params.ReservationDigest = &actor, &f.once.Key, f.once.Digest
	}
	return params
}

// recordRefusal gives the transaction up and puts the refusal on record, in one round trip.
func (s *Service) recordRefusal(ctx context.Context, tx *db.Transaction, f reservationFacts, r *Refusal) error {
	var after db.Pipeline
	db.RecordRefusalStatement.Rows(&after, db.RecordRefusalParams{
		CompanyID: f.company, IssueID: f.found.IssueID, WorkspaceID: f.found.WorkspaceID, RunID: f.found.RunID,
		Epoch: f.found.WorkspaceEpoch, Code: string(r.Code), Actor: f.by.Actor(),
	})
	if err := tx.RollbackBefore(ctx, &after); err != nil {
		return fmt.Errorf("record the refusal %s: %w", r.Code, err)
	}
	return jittered(r)
}

// jittered spreads the times at which refused callers come again, so that they do not come in step.
func jittered(r *Refusal) *Refusal {
	details, ok := r.Details.(WriterPending)
	if !ok {
		return r
	}
	half := int64(details.RetryAfter / 2)
	details.RetryAfter = time.Duration(half + rand.Int64N(2*half)) //nolint:gosec // a hint when to come again, not a secret
	return r.With(details)
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
	queued := queueReservationReads(&reads, reservationFacts{company: company, by: by, asked: in})
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

// nextActions names, by operation id, the calls that lead on from a refusal.
func nextActions(r *Refusal) []string {
	switch r.Code {
	case ErrWriterPending.Code:
		details, _ := r.Details.(WriterPending)
		switch details.State {
		case "writer_ended_unproven":
			return []string{"recordTerminationReceipt", "takeOverWorkspace"}
		case "writer_ended_dirty":
			return []string{"takeOverWorkspace"}
		default:
			return []string{"explainReservation", "reserveWorkspace"}
		}
	case ErrOwnershipChanged.Code:
		return []string{"updateExecutionWorkspace", "selectWorkspace"}
	case ErrBinding.Code:
		return []string{"selectWorkspace", "applySelection"}
	case ErrRunHoldsWorkspace.Code:
		return []string{"releaseWorkspace"}
	case ErrStaleEpoch.Code, ErrSourceMismatch.Code:
		return []string{"getTaskWorkspace"}
	default:
		return []string{}
	}
}
