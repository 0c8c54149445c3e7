package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Fence is the claim to be the writer of a workspace: the run that reserved it, at the epoch that
// it got.
type Fence struct {
	WorkspaceID uuid.UUID
	RunID       uuid.UUID
	Epoch       int64
}

// Tenure is the interval in which one run is the writer of a workspace, at one epoch. EndedHow is
// nil while it lasts, then release, finish, handover or takeover. Proof holds the receipts on which
// a handover or takeover rested.
type Tenure struct {
	ID          uuid.UUID
	CompanyID   uuid.UUID
	WorkspaceID uuid.UUID
	Epoch       int64
	RunID       uuid.UUID
	IssueID     *uuid.UUID
	StartedAt   time.Time
	StartedBy   string
	Handover    json.RawMessage
	EndedAt     *time.Time
	EndedHow    *string
	EndedBy     *string
	EndedReason *string
	UnsavedWork bool
	Unproven    bool
	Proof       json.RawMessage
}

func tenureOf(row db.Tenure) Tenure {
	return Tenure{
		ID: row.ID, CompanyID: row.CompanyID, WorkspaceID: row.WorkspaceID, Epoch: row.Epoch, RunID: row.RunID,
		IssueID: row.IssueID, StartedAt: row.StartedAt, StartedBy: row.StartedBy, Handover: row.Handover,
		EndedAt: row.EndedAt, EndedHow: row.EndedHow, EndedBy: row.EndedBy, EndedReason: row.EndedReason,
		UnsavedWork: row.UnsavedWork, Unproven: row.Unproven, Proof: row.Proof,
	}
}

// Renewal is the answer to a writer that says it is there. Token is a fresh run token in the second
// half of the old one's life, else nil. StopRequested is nil, or why and until when the run should stop.
type Renewal struct {
	LastRenewedAt  time.Time
	StopRequested  *StopNotice
	Token          *string
	TokenExpiresAt *time.Time
}

// StopNotice asks a writer to end by itself until the deadline.
type StopNotice struct {
	Reason   string
	Deadline time.Time
}

// Renew records that the writer is there. It never moves a deadline: nobody loses a workspace
// because time passed. One round trip, which it shares with others that renew at the same moment.
func (s *Service) Renew(ctx context.Context, by Principal, f Fence) (Renewal, error) {
	if err := f.claimedBy(by); err != nil {
		return Renewal{}, err
	}
	row, err := s.renew(ctx, by, f)
	if err != nil {
		return Renewal{}, err
	}
	renewal := Renewal{LastRenewedAt: *row.LastRenewedAt}
	if row.StopReason != nil {
		renewal.StopRequested = &StopNotice{Reason: *row.StopReason, Deadline: *row.StopDeadline}
	}
	if runTokenHalfSpent(by.TokenIssuedAt, time.Now()) {
		token, expires, err := s.signRunToken(ctx, Run{ID: by.RunID, CompanyID: by.CompanyID, AgentID: by.AgentID})
		if err != nil {
			return Renewal{}, err
		}
		renewal.Token, renewal.TokenExpiresAt = &token, &expires
	}
	return renewal, nil
}

// renew asks about the tenure by itself only when it could not be renewed with the others: the claim
// is wrong, or somebody just then works on the workspace or the run.
func (s *Service) renew(ctx context.Context, by Principal, f Fence) (db.RenewTenureRow, error) {
	asked := db.RenewTenureParams{CompanyID: by.CompanyID, WorkspaceID: f.WorkspaceID, Epoch: f.Epoch, RunID: f.RunID}
	together, err := s.renewals.ask(ctx, asked)
	if err != nil {
		return db.RenewTenureRow{}, err
	}
	if together != nil {
		return db.RenewTenureRow{
			LastRenewedAt: together.LastRenewedAt, StopReason: together.StopReason, StopDeadline: together.StopDeadline,
		}, nil
	}
	alone, err := s.queries.RenewTenure(ctx, s.pool, asked)
	if errors.Is(err, pgx.ErrNoRows) {
		return alone, s.fenceRefusal(ctx, s.pool, by, f)
	}
	if err != nil {
		return alone, fmt.Errorf("renew: %w", err)
	}
	return alone, nil
}

// MarkDirty records that the writer's files may from now on differ from what is saved. A writer
// says so before they do, and again before it writes on after it read them for a save.
func (s *Service) MarkDirty(ctx context.Context, by Principal, f Fence) (Workspace, error) {
	return s.fencedAct(ctx, by, f, func(acts *db.Pipeline, held db.ExecutionWorkspace) (*[]db.ExecutionWorkspace, error) {
		return db.MarkWorkspaceDirtyStatement.Rows(acts, db.MarkWorkspaceDirtyParams{
			CompanyID: held.CompanyID, WorkspaceID: f.WorkspaceID, Epoch: f.Epoch, RunID: f.RunID,
		}), nil
	})
}

// SetLocation records where the writer's files are: any JSON object, or nil for nowhere.
func (s *Service) SetLocation(ctx context.Context, by Principal, f Fence, location json.RawMessage) (Workspace, error) {
	return s.fencedAct(ctx, by, f, func(acts *db.Pipeline, held db.ExecutionWorkspace) (*[]db.ExecutionWorkspace, error) {
		return db.SetWorkspaceLocationStatement.Rows(acts, db.SetWorkspaceLocationParams{
			CompanyID: held.CompanyID, WorkspaceID: f.WorkspaceID, Epoch: f.Epoch, RunID: f.RunID, Location: location,
		}), nil
	})
}

// Release ends the tenure. Unsaved work refuses it with ErrWorkspaceDirty, unless discard gives the
// work up; the tenure then keeps on record that there was some.
func (s *Service) Release(ctx context.Context, by Principal, f Fence, discard bool) (Workspace, error) {
	return s.fencedAct(ctx, by, f, func(acts *db.Pipeline, held db.ExecutionWorkspace) (*[]db.ExecutionWorkspace, error) {
		release, closing, err := releasing{how: "release", by: by.Actor(), discard: discard}.of(held)
		if err != nil {
			return nil, err
		}
		freed := db.ReleaseWorkspaceStatement.Rows(acts, release)
		db.CloseTenureStatement.Rows(acts, closing)
		return freed, nil
	})
}

// releasing says how a tenure is let go by its own run.
type releasing struct {
	how     string
	by      string
	discard bool
}

// of is what frees the locked workspace, and what closes its tenure.
func (how releasing) of(held db.ExecutionWorkspace) (free db.ReleaseWorkspaceParams, closing db.CloseTenureParams, err error) {
	if held.Dirty && !how.discard {
		return free, closing, ErrWorkspaceDirty
	}
	free = db.ReleaseWorkspaceParams{
		CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: *held.WriterRunID, Discard: how.discard,
	}
	closing = db.CloseTenureParams{
		CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: *held.WriterRunID,
		EndedHow: how.how, EndedBy: how.by, UnsavedWork: held.Dirty,
	}
	return free, closing, nil
}

// release frees a locked workspace and closes the tenure.
func (s *Service) release(ctx context.Context, tx db.DBTX, held db.ExecutionWorkspace, how releasing) error {
	free, closing, err := how.of(held)
	if err != nil {
		return err
	}
	if _, err := s.queries.ReleaseWorkspace(ctx, tx, free); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if _, err := s.queries.CloseTenure(ctx, tx, closing); err != nil {
		return fmt.Errorf("close the tenure: %w", err)
	}
	return nil
}

// claimedBy refuses whoever is not the run that the fence names: knowing an epoch is not being it.
func (f Fence) claimedBy(by Principal) error {
	if by.Role != RoleRun || by.RunID != f.RunID {
		return ErrRunIdentity.Say("Only the run itself, by its own token, may do this.")
	}
	return nil
}

// fenced runs do on the workspace while the caller is its writer at the claimed epoch, and running.
// Both are locked until the commit. Otherwise the refusal says what became of the tenure.
func (s *Service) fenced(
	ctx context.Context, by Principal, f Fence, do func(tx db.DBTX, held db.ExecutionWorkspace) (db.ExecutionWorkspace, error),
) (Workspace, error) {
	if err := f.claimedBy(by); err != nil {
		return Workspace{}, err
	}
	return s.underLock(ctx, func() (*db.Transaction, db.ExecutionWorkspace, error) { return s.lockTenure(ctx, by, f) }, do)
}

// fencedAct is fenced in two round trips: act queues all that is to be done, which then travels with the
// commit. It returns the statement whose answer is the changed workspace.
func (s *Service) fencedAct(
	ctx context.Context, by Principal, f Fence, act func(*db.Pipeline, db.ExecutionWorkspace) (*[]db.ExecutionWorkspace, error),
) (Workspace, error) {
	if err := f.claimedBy(by); err != nil {
		return Workspace{}, err
	}
	var changed *db.ExecutionWorkspace
	err := db.Retry(ctx, func() error {
		tx, held, err := s.lockTenure(ctx, by, f)
		if err != nil {
			return err
		}
		var acts db.Pipeline
		answer, err := act(&acts, held)
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		if err := tx.CommitAfter(ctx, &acts); err != nil {
			return err
		}
		changed = db.First(answer)
		return nil
	})
	if err != nil {
		return Workspace{}, err
	}
	if changed == nil { // what was locked and tested cannot have changed
		return Workspace{}, errors.New("a locked workspace was not found by its own epoch")
	}
	return workspaceOf(*changed), nil
}

// underLock runs do in the transaction that lock begins, and commits it.
func (s *Service) underLock(
	ctx context.Context, lock func() (*db.Transaction, db.ExecutionWorkspace, error),
	do func(tx db.DBTX, held db.ExecutionWorkspace) (db.ExecutionWorkspace, error),
) (Workspace, error) {
	var changed db.ExecutionWorkspace
	err := db.Retry(ctx, func() error {
		tx, held, err := lock()
		if err != nil {
			return err
		}
		if changed, err = do(tx.DB(), held); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	})
	if err != nil {
		return Workspace{}, err
	}
	return workspaceOf(changed), nil
}

// lockTenure begins a transaction that holds the workspace and the run as they are, in one round
// trip. The caller ends it.
func (s *Service) lockTenure(ctx context.Context, by Principal, f Fence) (*db.Transaction, db.ExecutionWorkspace, error) {
	var reads db.Pipeline
	workspace := db.LockHeldWorkspaceStatement.Rows(&reads, db.LockHeldWorkspaceParams{
		CompanyID: by.CompanyID, WorkspaceID: f.WorkspaceID, Epoch: f.Epoch, RunID: f.RunID,
	})
	run := db.LockRunningRunStatement.Rows(&reads, db.LockRunningRunParams{CompanyID: by.CompanyID, RunID: f.RunID})
	tx, err := db.BeginReading(ctx, s.pool, &reads)
	if err != nil {
		return nil, db.ExecutionWorkspace{}, fmt.Errorf("lock the tenure: %w", err)
	}
	held := db.First(workspace)
	if held == nil || db.First(run) == nil {
		refusal := s.fenceRefusal(ctx, tx.DB(), by, f)
		return nil, db.ExecutionWorkspace{}, errors.Join(refusal, tx.Rollback(ctx))
	}
	return tx, *held, nil
}

// fenceRefusal says why a fenced write found no tenure: the run held that epoch once and no longer
// does, or it never did.
func (s *Service) fenceRefusal(ctx context.Context, q db.DBTX, by Principal, f Fence) error {
	t, err := s.queries.GetTenureOfFence(ctx, q, db.GetTenureOfFenceParams{
		CompanyID: by.CompanyID, WorkspaceID: f.WorkspaceID, Epoch: f.Epoch, RunID: f.RunID,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s.neverHeld(ctx, q, by, f)
	case err != nil:
		return fmt.Errorf("read the tenure: %w", err)
	case t.EndedAt != nil:
		return ErrTenureEnded.With(TenureEnding{EndedAt: *t.EndedAt, How: *t.EndedHow, By: *t.EndedBy, Reason: t.EndedReason})
	case t.RunFinishedAt != nil:
		ending := TenureEnding{EndedAt: *t.RunFinishedAt, How: "run_" + t.RunStatus, By: "unknown"}
		if t.RunFinishedBy != nil {
			ending.By = *t.RunFinishedBy
		}
		return ErrTenureEnded.Say("The run ended, and writes no more.").With(ending)
	case t.RunStatus != runRunning:
		return ErrRunIdentity.Say("The run is %s, and only a running one writes.", t.RunStatus)
	default:
		return ErrUnavailable.Say("The tenure changed while it was looked at; the call is safe to repeat.")
	}
}

// neverHeld is the refusal of a fence whose epoch was never the run's. Of the workspace learns who may
// read it, and who held it at some epoch, also when it reads nothing any more.
func (s *Service) neverHeld(ctx context.Context, q db.DBTX, by Principal, f Fence) error {
	held, err := s.queries.HasHeldWorkspace(ctx, q, db.HasHeldWorkspaceParams{
		CompanyID: by.CompanyID, WorkspaceID: f.WorkspaceID, RunID: f.RunID,
	})
	if err != nil {
		return fmt.Errorf("look up the run's tenures: %w", err)
	}
	if !held {
		if _, err := s.readableWorkspace(ctx, q, by, f.WorkspaceID); err != nil {
			return err
		}
	}
	return ErrStaleEpoch.Say("The run does not hold the workspace at epoch %d: read the workspace again.", f.Epoch)
}

// ListTenures returns the tenures of a workspace, newest first.
func (s *Service) ListTenures(ctx context.Context, by Principal, workspace uuid.UUID, page Page) (List[Tenure], error) {
	w, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	if err != nil {
		return List[Tenure]{}, err
	}
	before, err := page.before()
	if err != nil {
		return List[Tenure]{}, err
	}
	rows, err := s.queries.ListTenuresByWorkspace(ctx, s.pool, db.ListTenuresByWorkspaceParams{
		CompanyID: w.CompanyID, WorkspaceID: w.ID, BeforeEpoch: before, Rows: page.rows(),
	})
	if err != nil {
		return List[Tenure]{}, fmt.Errorf("list tenures: %w", err)
	}
	return numberedPage(page, rows, tenureOf, func(row db.Tenure) int64 { return row.Epoch }), nil
}
