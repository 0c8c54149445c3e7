package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"berth/db"
)

// A recovery saves what an ended writer left, in its name and at its epoch: the run stays the writer, and the
// save makes its workspace clean by the same rules as any. Then a handover by proof is possible. Operators recover,
// and whoever they gave a recovery token.

// errRecoveryOnly is for what belongs to no company, and everybody else with a token may read.
var errRecoveryOnly = ErrNotAllowed.Say("A recovery token reads and saves one workspace, and does nothing else.")

// savableBy refuses those who save in nobody's name: all but the run itself, a recovery of just that tenure, and
// operators.
func (f Fence) savableBy(by Principal) error {
	switch {
	case by.Role == RoleOperator:
		return nil
	case by.Role != RoleRecovery:
		return f.claimedBy(by)
	case by.WorkspaceID != f.WorkspaceID || by.RunID != f.RunID || by.Epoch != f.Epoch:
		return ErrRunIdentity.Say("The token recovers another tenure.")
	default:
		return nil
	}
}

// saving runs do on the workspace while the caller may save it, as fenced does for its other writes.
func (s *Service) saving(
	ctx context.Context, by Principal, f Fence,
	do func(tx db.DBTX, held db.ExecutionWorkspace) (db.ExecutionWorkspace, error),
) (Workspace, error) {
	return s.underLock(ctx, func() (*db.Transaction, db.ExecutionWorkspace, error) { return s.lockForSave(ctx, by, f) }, do)
}

// lockForSave begins a transaction that holds the workspace and its writer as they are: the caller is the writer and
// running, or the writer ended and is recovered. The caller ends it.
func (s *Service) lockForSave(ctx context.Context, by Principal, f Fence) (*db.Transaction, db.ExecutionWorkspace, error) {
	if by.Role == RoleRun {
		return s.lockTenure(ctx, by, f)
	}
	if by.Role == RoleOperator {
		readable, err := s.readableWorkspace(ctx, s.pool, by, f.WorkspaceID)
		if err != nil {
			return nil, db.ExecutionWorkspace{}, err
		}
		by.CompanyID = readable.CompanyID
	}
	var reads db.Pipeline
	workspace := db.LockHeldWorkspaceStatement.Rows(&reads, db.LockHeldWorkspaceParams{
		CompanyID: by.CompanyID, WorkspaceID: f.WorkspaceID, Epoch: f.Epoch, RunID: f.RunID,
	})
	run := db.LockEndedRunStatement.Rows(&reads, db.LockEndedRunParams{CompanyID: by.CompanyID, RunID: f.RunID})
	proofs := db.LeaseProofsByRunStatement.Rows(&reads, db.ListLeaseProofsByRunParams{CompanyID: by.CompanyID, RunID: f.RunID})
	tx, err := db.BeginReading(ctx, s.pool, &reads)
	if err != nil {
		return nil, db.ExecutionWorkspace{}, fmt.Errorf("lock an ended tenure: %w", err)
	}
	held, ended := db.First(workspace), db.First(run)
	switch {
	case held == nil:
		err = s.fenceRefusal(ctx, tx.DB(), by, f)
	case ended == nil:
		err = ErrRunIdentity.Say("The writer's run goes on, and only the run itself saves.")
	default:
		err = recoverable(*ended, leaseProofsOf(*proofs), by.RiskAccepted)
	}
	if err != nil {
		return nil, db.ExecutionWorkspace{}, errors.Join(err, tx.Rollback(ctx))
	}
	return tx, *held, nil
}

// recordRecovery tells that the ended writer's work was saved, and what was not proven then.
func (s *Service) recordRecovery(ctx context.Context, tx db.DBTX, by Principal, held db.ExecutionWorkspace, saved uuid.UUID) error {
	leases, err := s.leaseProofs(ctx, tx, held.CompanyID, *held.WriterRunID)
	if err != nil {
		return err
	}
	data, _ := json.Marshal(map[string]any{ // plain values always marshal
		"snapshotId": saved, "riskAccepted": !provenStopped(leases), "missingProof": missingProofRecord(leases),
	})
	return s.recordEvent(ctx, tx, db.InsertEventParams{
		CompanyID: held.CompanyID, Kind: "workspace.recovered", WorkspaceID: &held.ID, RunID: held.WriterRunID,
		Epoch: &held.Epoch, Actor: by.Actor(), Data: data,
	})
}

// recoveredWorkspace returns the workspace that a recovery token is for, as long as its tenure goes on. Of any other
// it knows nothing.
func (s *Service) recoveredWorkspace(ctx context.Context, q db.DBTX, by Principal, workspace uuid.UUID) (db.ExecutionWorkspace, error) {
	if by.WorkspaceID != workspace {
		return db.ExecutionWorkspace{}, ErrWorkspaceNotFound
	}
	w, err := s.queries.GetWorkspace(ctx, q, db.GetWorkspaceParams{CompanyID: by.CompanyID, WorkspaceID: workspace})
	if err != nil {
		return w, fmt.Errorf("read the recovered workspace: %w", err)
	}
	if w.Epoch != by.Epoch || w.WriterRunID == nil || *w.WriterRunID != by.RunID {
		return w, s.notTheWriter(ctx, q, w, by.Epoch)
	}
	return w, nil
}

// snapshotToCommit finds a snapshot for who may commit it. A recovery finds those of its tenure also after the
// tenure ended: a commit whose answer was lost answers again.
func (s *Service) snapshotToCommit(ctx context.Context, by Principal, f Fence, id uuid.UUID) (db.Snapshot, error) {
	if by.Role != RoleRecovery {
		return s.visibleSnapshot(ctx, by, f.WorkspaceID, id)
	}
	row, err := s.queries.GetSnapshot(ctx, s.pool, db.GetSnapshotParams{CompanyID: by.CompanyID, WorkspaceID: f.WorkspaceID, SnapshotID: id})
	return found(row, err, ErrSnapshotNotFound, "read the snapshot")
}
