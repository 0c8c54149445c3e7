package authority

import (
	"context"
	"encoding/json"
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
	WaitSeconds         int // 0 to 60: how long to wait for an unfinished writer
}

// Reservation is a granted one. Replayed is true when the run was the writer already, and nothing
// changed. Handover is nil, or tells whom the run follows.
type Reservation struct {
	Workspace Workspace
	Replayed  bool
	Handover  *Handover
}

// reserveTries bounds how often a reservation decides again because another was faster.
const reserveTries = 3

// Reserve makes the run the writer of its task's workspace, at the next epoch. Every refusal of the
// table of outcomes is possible; after one the workspace is as it was. With a key in once the
// reservation is for one tenure: while it lives the same answer comes again, and afterwards
// ErrTenureEnded. With WaitSeconds an ErrWriterPending is answered only when the time is over: until
// then the run has a place in the workspace's line.
func (s *Service) Reserve(ctx context.Context, by Principal, in ReserveInput, once Once) (Reservation, error) {
	var turn *Turn
	for {
		reservation, waits, err := s.ReserveOrWait(ctx, by, in, once, turn)
		if waits == nil {
			return reservation, err
		}
		turn = waits
		turn.Await(ctx)
	}
}

// mayReserve finds the task's company for who may reserve for it.
func (s *Service) mayReserve(ctx context.Context, by Principal, in ReserveInput) (reservationFacts, error) {
	if by.Role != RoleRun && by.Role != RoleOperator {
		return reservationFacts{}, s.refuseToReserve(ctx, by, in)
	}
	if in.WaitSeconds < 0 || in.WaitSeconds > maximumWaitSeconds {
		return reservationFacts{}, ErrValidation.At("body.waitSeconds", "is not between 0 and 60: ask again to wait longer")
	}
	company, err := s.companyOfIssue(ctx, by, in.IssueID)
	return s.asking(company, by, in), err
}

// asking are the facts of a reservation as far as its caller gives them.
func (s *Service) asking(company uuid.UUID, by Principal, in ReserveInput) reservationFacts {
	return reservationFacts{company: company, by: by, asked: in, silentAfter: s.silentAfter}
}

// reply is how a reservation was decided.
type reply struct {
	reservation Reservation
	refusal     *Refusal
	workspace   *uuid.UUID // the one that the task is bound to
}

// refused is the refusal as an error, or nil.
func (r reply) refused() error {
	if r.refusal == nil {
		return nil
	}
	return r.refusal
}

// reserveNow decides, and decides again when another transaction came between.
func (s *Service) reserveNow(ctx context.Context, asking reservationFacts, how trying) (reply, error) {
	for range reserveTries {
		var answer reply
		var decided bool
		err := db.Retry(ctx, func() (err error) {
			answer, decided, err = s.tryReserve(ctx, asking, how)
			return err
		})
		if decided || err != nil {
			return answer, err
		}
		how.patiently = true
	}
	return reply{}, ErrUnavailable.Say("Others kept changing the workspace; the call is safe to repeat.")
}

// refuseToReserve answers those who may read a task but reserve nothing.
func (s *Service) refuseToReserve(ctx context.Context, by Principal, in ReserveInput) error {
	if _, err := s.readableIssue(ctx, s.pool, by, in.IssueID); err != nil {
		return err
	}
	return ErrNotAllowed.Say("A run reserves, with its own token, or an operator for it.")
}

// trying says how to try.
type trying struct {
	patiently bool // waits for the workspace's lock
	onRecord  bool // a refusal is recorded
	givenUp   bool // the caller's place was given up: nothing is granted any more
}

// tryReserve locks, reads, decides and acts, in two round trips to the database. It reports false
// when another transaction came between or holds the workspace, and the next try has to wait for it:
// those who are refused need no lock, so they stand in nobody's way.
func (s *Service) tryReserve(ctx context.Context, asking reservationFacts, how trying) (reply, bool, error) {
	var reads db.Pipeline
	locked := queueReservationLocks(&reads, asking, how.patiently)
	queued := queueReservationReads(&reads, asking)
	tx, err := db.BeginReading(ctx, s.pool, &reads)
	if err != nil {
		return reply{}, false, fmt.Errorf("read the facts of a reservation: %w", err)
	}
	facts := queued.answered()
	v := decide(facts)
	if how.givenUp && v.refusal == nil && v.grant != grantReplay {
		v = refuse(writerPending(facts, "others_wait").Say("The run's place in line was given up."))
	}
	switch {
	case v.refusal != nil:
		answer := reply{refusal: jittered(v.refusal), workspace: facts.found.WorkspaceID}
		if !how.onRecord {
			return answer, true, tx.Rollback(ctx)
		}
		return answer, true, s.recordRefusal(ctx, tx, facts, v.refusal)
	case v.grant == grantCreate:
		if err := tx.Rollback(ctx); err != nil {
			return reply{}, false, err
		}
		reservation, decided, err := s.reserveNew(ctx, facts)
		return reply{reservation: reservation}, decided, err
	case db.First(locked) == nil:
		return reply{}, false, tx.Rollback(ctx)
	case v.grant == grantReplay:
		workspace, err := s.queries.GetWorkspace(ctx, tx.DB(), db.GetWorkspaceParams{CompanyID: facts.company, WorkspaceID: *facts.found.WorkspaceID})
		if endErr := tx.Rollback(ctx); err == nil {
			err = endErr
		}
		return reply{reservation: Reservation{Workspace: workspaceOf(workspace), Replayed: true, Handover: v.handover}}, true, err
	}
	var acts db.Pipeline
	workspace := queueGrant(&acts, facts, v)
	if err := tx.CommitAfter(ctx, &acts); err != nil {
		return reply{}, false, fmt.Errorf("reserve: %w", err)
	}
	granted := db.First(workspace)
	if granted == nil {
		return reply{}, false, nil
	}
	return reply{reservation: Reservation{Workspace: workspaceOf(*granted), Handover: v.handover}}, true, nil
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
	if w.PlaceID != nil {
		db.LeavePlaceStatement.Rows(acts, db.LeavePlaceParams{CompanyID: company, RunID: f.asked.RunID})
	}
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
	return nil
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
