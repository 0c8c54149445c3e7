package authority

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/snapshot"
)

// copySnapshot stores the bytes of a committed snapshot once more, for another epoch or workspace, and returns the row
// that will stand for them. The bytes come first: when no row follows they are an orphan to collect.
func (s *Service) copySnapshot(ctx context.Context, from db.Snapshot, workspace uuid.UUID, epoch int64) (db.InsertSnapshotParams, error) {
	if from.State != "committed" {
		return db.InsertSnapshotParams{}, ErrSnapshotUnavailable.Say("The snapshot is %s: its content is not here.", from.State)
	}
	id, provider := newID(), storeProvider
	key := snapshot.Key(from.CompanyID, workspace, epoch, id)
	content, _, err := s.store.Open(ctx, *from.LocationKey)
	if errors.Is(err, snapshot.ErrNotFound) {
		return db.InsertSnapshotParams{}, ErrSnapshotUnavailable.Say("The snapshot's content is missing from the store.")
	}
	if err != nil {
		return db.InsertSnapshotParams{}, s.storeError(ctx, "open a snapshot to copy it", err)
	}
	defer content.Close() //nolint:errcheck // it was only read
	if err := s.store.Put(ctx, key, content, snapshot.Digest{Size: *from.Size, SHA256: *from.Sha256}); err != nil {
		return db.InsertSnapshotParams{}, s.storeError(ctx, "copy a snapshot", err)
	}
	return db.InsertSnapshotParams{
		ID: id, CompanyID: from.CompanyID, WorkspaceID: workspace, Epoch: epoch, ParentSnapshotID: &from.ID, State: "committed",
		LocationProvider: &provider, LocationKey: &key, Size: from.Size, FileCount: from.FileCount, Sha256: from.Sha256,
	}, nil
}

// RollBack makes an older saved state the current one again, as a new snapshot of the writer's that follows the one that
// is current. The writer restores it next: what is in its directory is something else. Unsaved work refuses it
// with ErrWorkspaceDirty.
func (s *Service) RollBack(ctx context.Context, by Principal, f Fence, id uuid.UUID) (Snapshot, error) {
	if err := f.claimedBy(by); err != nil {
		return Snapshot{}, err
	}
	from, err := s.visibleSnapshot(ctx, by, f.WorkspaceID, id)
	if err != nil {
		return Snapshot{}, err
	}
	// The claim is tested before the bytes are copied, to spare a stale writer the work.
	tx, held, err := s.lockTenure(ctx, by, f)
	if err != nil {
		return Snapshot{}, err
	}
	if err := tx.Rollback(ctx); err != nil {
		return Snapshot{}, err
	}
	if held.Dirty {
		return Snapshot{}, ErrWorkspaceDirty
	}
	next, err := s.copySnapshot(ctx, from, f.WorkspaceID, f.Epoch)
	if err != nil {
		return Snapshot{}, err
	}
	next.RunID, next.CreatedBy, next.ParentSnapshotID = &f.RunID, by.Actor(), held.SnapshotID
	var made db.Snapshot
	_, err = s.fenced(ctx, by, f, func(tx db.DBTX, now db.ExecutionWorkspace) (db.ExecutionWorkspace, error) {
		switch {
		case now.Dirty:
			return now, ErrWorkspaceDirty
		case now.SnapshotID == nil || held.SnapshotID == nil || *now.SnapshotID != *held.SnapshotID:
			return now, ErrSnapshotSuperseded
		}
		next.DirtyMarks = now.DirtyMarks
		if made, err = s.queries.InsertSnapshot(ctx, tx, next); err != nil {
			return now, fmt.Errorf("record the rollback: %w", err)
		}
		return s.queries.AdoptSnapshot(ctx, tx, db.AdoptSnapshotParams{
			SnapshotID: made.ID, DirtyMarks: made.DirtyMarks, CompanyID: now.CompanyID, WorkspaceID: now.ID,
			Epoch: now.Epoch, RunID: f.RunID, ParentSnapshotID: made.ParentSnapshotID,
		})
	})
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(made), nil
}

// Branching is where a new workspace gets its first files from: a saved state of another, the current one unless
// SnapshotID names one.
type Branching struct {
	WorkspaceID uuid.UUID
	SnapshotID  *uuid.UUID
}

// branch finds the origin of a new workspace and copies its saved state. What belongs to the origin (project, project
// workspace, source) is the new one's too; who may not read the origin may not branch from it.
func (s *Service) branch(ctx context.Context, by Principal, company, workspace uuid.UUID, in *WorkspaceInput) (db.InsertSnapshotParams, error) {
	origin, err := s.readableWorkspace(ctx, s.pool, by, in.From.WorkspaceID)
	if err != nil {
		return db.InsertSnapshotParams{}, err
	}
	if origin.CompanyID != company {
		return db.InsertSnapshotParams{}, ErrWorkspaceNotFound
	}
	in.ProjectID, in.ProjectWorkspaceID, in.Source = origin.ProjectID, origin.ProjectWorkspaceID, origin.Source
	id := in.From.SnapshotID
	if id == nil {
		id = origin.SnapshotID
	}
	if id == nil {
		return db.InsertSnapshotParams{}, ErrSnapshotUnavailable.Say("The workspace has no saved state to branch from.")
	}
	row, err := s.queries.GetSnapshot(ctx, s.pool, db.GetSnapshotParams{CompanyID: company, WorkspaceID: origin.ID, SnapshotID: *id})
	if row, err = found(row, err, ErrSnapshotNotFound, "read the snapshot"); err != nil {
		return db.InsertSnapshotParams{}, err
	}
	first, err := s.copySnapshot(ctx, row, workspace, 0)
	first.CreatedBy = by.Actor()
	return first, err
}

// stillReadsOrigin asks once more, in the transaction that makes the branch: the right may have been withdrawn while
// the bytes were copied.
func (s *Service) stillReadsOrigin(ctx context.Context, tx pgx.Tx, by Principal, in WorkspaceInput) error {
	if in.From == nil {
		return nil
	}
	_, err := s.readableWorkspace(ctx, tx, by, in.From.WorkspaceID)
	return err
}
