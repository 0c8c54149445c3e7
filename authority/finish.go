package authority

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// FinishInput moves a run on. Status is running, for one that waits to start, or terminal:
// succeeded, interrupted, failed, cancelled or timed_out, which are final. Discard gives up unsaved
// work of a run that ends itself.
type FinishInput struct {
	Status  string
	Discard bool
}

var terminalStatuses = []string{"succeeded", "interrupted", "failed", "cancelled", "timed_out"}

func terminal(status string) bool { return slices.Contains(terminalStatuses, status) }

// FinishRun ends a run. By its own token a clean tenure is released in the same transaction, and
// unsaved work refuses it with ErrWorkspaceDirty unless it is discarded. By anybody else only the
// run ends: that it was marked as ended does not prove that it stopped, so it stays the writer.
// Finishing again with the same status changes nothing; with another it is ErrRunFinal.
func (s *Service) FinishRun(ctx context.Context, by Principal, run uuid.UUID, in FinishInput) (Run, error) {
	if in.Status != runRunning && !terminal(in.Status) {
		return Run{}, ErrValidation.At("body.status", "is none of running, succeeded, interrupted, failed, cancelled, timed_out")
	}
	company, err := s.mayFinish(ctx, by, run)
	if err != nil {
		return Run{}, err
	}
	var finished db.HeartbeatRun
	for range reserveTries {
		err = s.inTx(ctx, func(tx pgx.Tx) error {
			finished, err = s.finish(ctx, tx, by, finishing{company: company, run: run, in: in})
			return err
		})
		if !errors.Is(err, errHeldMeanwhile) {
			break
		}
	}
	if errors.Is(err, errHeldMeanwhile) {
		return Run{}, ErrUnavailable.Say("The run kept reserving while it was finished; the call is safe to repeat.")
	}
	if err != nil {
		return Run{}, err
	}
	return runOf(finished), nil
}

// errHeldMeanwhile never leaves the package: the run got a workspace after its lock order was
// chosen, and the transaction starts over.
var errHeldMeanwhile = errors.New("the run reserved a workspace meanwhile")

type finishing struct {
	company uuid.UUID
	run     uuid.UUID
	in      FinishInput
}

// mayFinish finds the run's company for who may end it: itself, whatever state it is in, an
// operator, or a member who may write there.
func (s *Service) mayFinish(ctx context.Context, by Principal, run uuid.UUID) (uuid.UUID, error) {
	if by.Role == RoleRun && by.RunID == run {
		return by.CompanyID, nil
	}
	readable, err := s.GetRun(ctx, by, run)
	if err != nil {
		return uuid.Nil, err
	}
	return readable.CompanyID, s.requireCompanyWrite(ctx, s.pool, by, readable.CompanyID)
}

// finish locks the workspace that the run holds before the run, as everything does, and then looks
// whether the run got one in between.
func (s *Service) finish(ctx context.Context, tx pgx.Tx, by Principal, f finishing) (db.HeartbeatRun, error) {
	if f.in.Status == runRunning {
		if err := s.shareLockTask(ctx, tx, f); err != nil {
			return db.HeartbeatRun{}, err
		}
	}
	held, err := s.queries.LockWorkspaceHeldByRun(ctx, tx, db.LockWorkspaceHeldByRunParams{CompanyID: f.company, RunID: f.run})
	holds := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return db.HeartbeatRun{}, fmt.Errorf("lock the run's workspace: %w", err)
	}
	run, err := s.queries.LockRun(ctx, tx, db.LockRunParams{CompanyID: f.company, RunID: f.run})
	if run, err = found(run, err, ErrRunNotFound, "lock the run"); err != nil {
		return run, err
	}
	if run.FinishedAt != nil || f.in.Status == runRunning {
		return s.startOrRepeat(ctx, tx, run, f.in.Status)
	}
	if !holds {
		now, err := s.queries.GetWorkspaceHeldByRun(ctx, tx, db.GetWorkspaceHeldByRunParams{CompanyID: f.company, RunID: f.run})
		if err == nil && now.WriterRunID != nil {
			return run, errHeldMeanwhile
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return run, fmt.Errorf("look again for the run's workspace: %w", err)
		}
	}
	if holds && by.Role == RoleRun && by.RunID == f.run {
		if err := s.release(ctx, tx, held, releasing{how: "finish", by: by.Actor(), discard: f.in.Discard}); err != nil {
			return run, err
		}
	}
	return s.endRun(ctx, tx, run, f.in.Status, by.Actor())
}

// endRun gives a locked run its final status, in the actor's name.
func (s *Service) endRun(ctx context.Context, tx pgx.Tx, run db.HeartbeatRun, status, actor string) (db.HeartbeatRun, error) {
	ended, err := s.queries.FinishRun(ctx, tx, db.FinishRunParams{
		Status: status, FinishedBy: actor, CompanyID: run.CompanyID, RunID: run.ID,
	})
	if err != nil {
		return run, fmt.Errorf("finish the run: %w", err)
	}
	return ended, s.recordEvent(ctx, tx, db.InsertEventParams{
		CompanyID: run.CompanyID, Kind: "run." + status, RunID: &run.ID, IssueID: run.IssueID, Actor: actor,
	})
}

// shareLockTask locks the task of a run that is to start. A change of the task's binding, which waits until no
// run of it is running, either sees this run or comes before it.
func (s *Service) shareLockTask(ctx context.Context, tx pgx.Tx, f finishing) error {
	_, err := s.queries.ShareLockTaskOfRun(ctx, tx, db.ShareLockTaskOfRunParams{CompanyID: f.company, RunID: f.run})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lock the task of a run: %w", err)
	}
	return nil
}

// startOrRepeat answers what needs no ending: a run that starts, and one that has the status already.
func (s *Service) startOrRepeat(ctx context.Context, tx pgx.Tx, run db.HeartbeatRun, status string) (db.HeartbeatRun, error) {
	switch {
	case run.Status == status:
		return run, nil
	case run.FinishedAt != nil:
		return run, ErrRunFinal.Say("The run ended as %s, which is final.", run.Status)
	}
	started, err := s.queries.StartRun(ctx, tx, db.StartRunParams{CompanyID: run.CompanyID, RunID: run.ID})
	if err != nil {
		return run, fmt.Errorf("start the run: %w", err)
	}
	return started, nil
}
