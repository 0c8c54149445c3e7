package authority

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"berth/db"
	"berth/snapshot"
)

// Snapshot is an immutable, complete saved state of a workspace's files. State is pending until its
// bytes are there and its writer commits it; unavailable when it was imported without bytes.
// LocationProvider and LocationKey say where the bytes are; Size is the archive's, in bytes.
type Snapshot struct {
	ID               uuid.UUID
	CompanyID        uuid.UUID
	WorkspaceID      uuid.UUID
	Epoch            int64
	RunID            *uuid.UUID
	ParentSnapshotID *uuid.UUID
	State            string
	LocationProvider *string
	LocationKey      *string
	Size             *int64
	FileCount        *int64
	SHA256           *string
	Name             *string
	CreatedBy        string
	CreatedAt        time.Time
	CommittedAt      *time.Time
}

func snapshotOf(row db.Snapshot) Snapshot {
	return Snapshot{
		ID: row.ID, CompanyID: row.CompanyID, WorkspaceID: row.WorkspaceID, Epoch: row.Epoch, RunID: row.RunID,
		ParentSnapshotID: row.ParentSnapshotID, State: row.State,
		LocationProvider: row.LocationProvider, LocationKey: row.LocationKey,
		Size: row.Size, FileCount: row.FileCount, SHA256: row.Sha256, Name: row.Name,
		CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt, CommittedAt: row.CommittedAt,
	}
}

// SnapshotInput announces a save: the archive's size and hash, how many files it holds, and the
// saved state that it follows.
type SnapshotInput struct {
	SHA256           string
	Size             int64
	FileCount        int64
	ParentSnapshotID *uuid.UUID
}

// CreateSnapshot begins a save by the workspace's writer, or a recovery of one that ended. Its bytes are uploaded
// next, and then it is committed; only the commit changes what is saved.
func (s *Service) CreateSnapshot(ctx context.Context, by Principal, f Fence, in SnapshotInput) (Snapshot, error) {
	if err := f.savableBy(by); err != nil {
		return Snapshot{}, err
	}
	if err := in.validate(); err != nil {
		return Snapshot{}, err
	}
	var created db.Snapshot
	_, err := s.saving(ctx, by, f, func(tx db.DBTX, held db.ExecutionWorkspace) (db.ExecutionWorkspace, error) {
		if in.ParentSnapshotID == nil || held.SnapshotID == nil || *in.ParentSnapshotID != *held.SnapshotID {
			return held, ErrSnapshotSuperseded
		}
		id, provider := newID(), storeProvider
		key := snapshot.Key(held.CompanyID, held.ID, held.Epoch, id)
		var err error
		created, err = s.queries.InsertSnapshot(ctx, tx, db.InsertSnapshotParams{
			ID: id, CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: &f.RunID,
			ParentSnapshotID: in.ParentSnapshotID, State: "pending", LocationProvider: &provider, LocationKey: &key,
			Size: &in.Size, FileCount: &in.FileCount, Sha256: &in.SHA256, DirtyMarks: held.DirtyMarks, CreatedBy: by.Actor(),
		})
		return held, err
	})
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(created), nil
}

func (in SnapshotInput) validate() error {
	var v validation
	if err := (snapshot.Digest{Size: in.Size, SHA256: in.SHA256}).Validate(); err != nil {
		v.add("body", err.Error())
	}
	if in.FileCount < 0 {
		v.add("body.fileCount", "is negative")
	}
	return v.err()
}

// UploadSnapshot stores the bytes of a pending snapshot; they must have the announced size and hash,
// and a mismatch leaves nothing. Only the writer uploads, and only while it is that. An operator
// brings the bytes of an imported snapshot, once.
func (s *Service) UploadSnapshot(ctx context.Context, by Principal, workspace, id uuid.UUID, content io.Reader) (Snapshot, error) {
	row, err := s.visibleSnapshot(ctx, by, workspace, id)
	if err != nil {
		return Snapshot{}, err
	}
	switch {
	case row.State == "unavailable":
		return s.fillSnapshot(ctx, by, row, content)
	case row.RunID == nil && by.Role == RoleOperator:
		return Snapshot{}, ErrSnapshotNotPending.Say("The snapshot has its content already.")
	case row.RunID == nil:
		return Snapshot{}, ErrRunIdentity.Say("Only the run that began the snapshot uploads its content.")
	}
	f := Fence{WorkspaceID: workspace, RunID: *row.RunID, Epoch: row.Epoch}
	if err := f.savableBy(by); err != nil {
		return Snapshot{}, err
	}
	switch {
	case row.CreatedBy != by.Actor() && by.Role != RoleRun:
		return Snapshot{}, ErrRunIdentity.Say("Only who began the snapshot uploads its content.")
	case row.State != "pending":
		return Snapshot{}, ErrSnapshotNotPending.Say("The snapshot is %s, and takes no content any more.", row.State)
	}
	// The claim is tested before the bytes flow, to spare a stale writer a long upload. What arrives
	// after it became stale lies under its own dead epoch, and the commit refuses it.
	tx, _, err := s.lockForSave(ctx, by.AcceptingRisk(true), f)
	if err != nil {
		return Snapshot{}, err
	}
	if err := tx.Rollback(ctx); err != nil {
		return Snapshot{}, err
	}
	if err := s.putContent(ctx, *row.LocationKey, content, snapshot.Digest{Size: *row.Size, SHA256: *row.Sha256}); err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(row), nil
}

func (s *Service) putContent(ctx context.Context, key string, content io.Reader, want snapshot.Digest) error {
	err := s.store.Put(ctx, key, content, want)
	var mismatch *snapshot.MismatchError
	if errors.As(err, &mismatch) {
		return ErrSnapshotContent.Say("The content is not what was announced: %s.", mismatch)
	}
	if errors.Is(err, snapshot.ErrObjectTooLarge) {
		return ErrSnapshotContent.Say("The snapshot store takes no archive of %d bytes.", want.Size)
	}
	if err != nil {
		return s.storeError(ctx, "store a snapshot", err)
	}
	return nil
}

// CommitSnapshot makes a pending snapshot the saved state of its workspace: by its writer, at the
// current epoch, with its bytes in place, following the saved state that it was begun on. The
// workspace is clean again unless the writer announced further changes since. A committed snapshot
// answers its result again, at any time, and changes nothing.
//
// A recovery commits by the same rules, and the ended run stays the writer.
func (s *Service) CommitSnapshot(ctx context.Context, by Principal, f Fence, id uuid.UUID) (Snapshot, error) {
	if err := f.savableBy(by); err != nil {
		return Snapshot{}, err
	}
	row, err := s.snapshotToCommit(ctx, by, f, id)
	if err != nil {
		return Snapshot{}, err
	}
	if row.RunID == nil || *row.RunID != f.RunID || row.Epoch != f.Epoch {
		return Snapshot{}, ErrStaleEpoch.Say("The snapshot was begun by another run or at another epoch than %d.", f.Epoch)
	}
	if row.State == "committed" {
		return snapshotOf(row), nil
	}
	size, err := s.store.Stat(ctx, *row.LocationKey)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return Snapshot{}, s.commitRefusal(ctx, by, f)
	case err != nil:
		return Snapshot{}, s.storeError(ctx, "look for a snapshot's content", err)
	case size != *row.Size:
		return Snapshot{}, ErrSnapshotIncomplete
	}
	committed := row
	_, err = s.saving(ctx, by, f, func(tx db.DBTX, held db.ExecutionWorkspace) (db.ExecutionWorkspace, error) {
		var adopted db.ExecutionWorkspace
		committed, adopted, err = s.commitLocked(ctx, tx, held, id)
		if err != nil || by.Role == RoleRun {
			return adopted, err
		}
		return adopted, s.recordRecovery(ctx, tx, by, held, id)
	})
	if errors.Is(err, errCommittedMeanwhile) {
		return snapshotOf(committed), nil
	}
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(committed), nil
}

// errCommittedMeanwhile never leaves the package: another call committed the same snapshot, and its
// result is the answer.
var errCommittedMeanwhile = errors.New("the snapshot was committed meanwhile")

// commitRefusal says why a snapshot without content cannot be committed: the tenure ended, which
// counts first, or the content was never uploaded.
func (s *Service) commitRefusal(ctx context.Context, by Principal, f Fence) error {
	tx, _, err := s.lockForSave(ctx, by, f)
	if err != nil {
		return err
	}
	return errors.Join(ErrSnapshotIncomplete, tx.Rollback(ctx))
}

// commitLocked flips the snapshot and lets the locked workspace name it.
func (s *Service) commitLocked(ctx context.Context, tx db.DBTX, held db.ExecutionWorkspace, id uuid.UUID) (db.Snapshot, db.ExecutionWorkspace, error) {
	row, err := s.queries.LockSnapshot(ctx, tx, db.LockSnapshotParams{CompanyID: held.CompanyID, WorkspaceID: held.ID, SnapshotID: id})
	switch {
	case err != nil:
		return row, held, fmt.Errorf("lock the snapshot: %w", err)
	case row.State == "committed":
		return row, held, errCommittedMeanwhile
	case row.State != "pending":
		return row, held, ErrSnapshotNotPending.Say("The snapshot is %s, and cannot be committed: save again.", row.State)
	case row.ParentSnapshotID == nil || held.SnapshotID == nil || *row.ParentSnapshotID != *held.SnapshotID:
		return row, held, ErrSnapshotSuperseded
	}
	row, err = s.queries.CommitSnapshot(ctx, tx, db.CommitSnapshotParams{CompanyID: held.CompanyID, SnapshotID: id})
	if err != nil {
		return row, held, fmt.Errorf("commit the snapshot: %w", err)
	}
	adopted, err := s.queries.AdoptSnapshot(ctx, tx, db.AdoptSnapshotParams{
		SnapshotID: id, DirtyMarks: row.DirtyMarks, CompanyID: held.CompanyID, WorkspaceID: held.ID,
		Epoch: held.Epoch, RunID: *held.WriterRunID, ParentSnapshotID: row.ParentSnapshotID,
	})
	if err != nil {
		return row, held, fmt.Errorf("adopt the snapshot: %w", err)
	}
	return row, adopted, nil
}

// GetSnapshot returns a snapshot of a workspace that the caller may read, or that its own run made.
func (s *Service) GetSnapshot(ctx context.Context, by Principal, workspace, id uuid.UUID) (Snapshot, error) {
	row, err := s.visibleSnapshot(ctx, by, workspace, id)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(row), nil
}

// visibleSnapshot finds a snapshot for who may read its workspace, and for the run that made it or
// holds the workspace: a holder that lost the right to read still saves.
func (s *Service) visibleSnapshot(ctx context.Context, by Principal, workspace, id uuid.UUID) (db.Snapshot, error) {
	company, err := s.companyOfSnapshots(ctx, by, workspace)
	if err != nil {
		return db.Snapshot{}, err
	}
	row, err := s.queries.GetSnapshot(ctx, s.pool, db.GetSnapshotParams{CompanyID: company, WorkspaceID: workspace, SnapshotID: id})
	return found(row, err, ErrSnapshotNotFound, "read the snapshot")
}

// companyOfSnapshots finds a workspace's company for who may look at its snapshots.
func (s *Service) companyOfSnapshots(ctx context.Context, by Principal, workspace uuid.UUID) (uuid.UUID, error) {
	if by.Role == RoleRecovery {
		w, err := s.recoveredWorkspace(ctx, s.pool, by, workspace)
		return w.CompanyID, err
	}
	if by.Role == RoleRun {
		held, err := s.queries.HasHeldWorkspace(ctx, s.pool, db.HasHeldWorkspaceParams{
			CompanyID: by.CompanyID, WorkspaceID: workspace, RunID: by.RunID,
		})
		if err != nil {
			return uuid.Nil, fmt.Errorf("look up the run's tenure: %w", err)
		}
		if held {
			return by.CompanyID, nil
		}
	}
	w, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	return w.CompanyID, err
}

// ListSnapshots returns the snapshots of a workspace, newest first.
func (s *Service) ListSnapshots(ctx context.Context, by Principal, workspace uuid.UUID, page Page) (List[Snapshot], error) {
	company, err := s.companyOfSnapshots(ctx, by, workspace)
	if err != nil {
		return List[Snapshot]{}, err
	}
	before, err := page.after()
	if err != nil {
		return List[Snapshot]{}, err
	}
	params := db.ListSnapshotsParams{CompanyID: company, WorkspaceID: workspace, Rows: page.rows()}
	if before != nil {
		params.BeforeAt, params.BeforeID = &before.At, &before.ID
	}
	rows, err := s.queries.ListSnapshots(ctx, s.pool, params)
	if err != nil {
		return List[Snapshot]{}, fmt.Errorf("list snapshots: %w", err)
	}
	return pageOf(page, rows, snapshotOf, func(row db.Snapshot) place { return place{At: row.CreatedAt, ID: row.ID} }), nil
}

// OpenSnapshot returns the archive of a committed snapshot; the caller closes it. One whose bytes
// are not here is ErrSnapshotUnavailable, never an empty tree.
func (s *Service) OpenSnapshot(ctx context.Context, by Principal, workspace, id uuid.UUID) (io.ReadCloser, Snapshot, error) {
	row, err := s.visibleSnapshot(ctx, by, workspace, id)
	if err != nil {
		return nil, Snapshot{}, err
	}
	if row.State != "committed" {
		return nil, Snapshot{}, ErrSnapshotUnavailable.Say("The snapshot is %s: its content is not here.", row.State)
	}
	content, _, err := s.store.Open(ctx, *row.LocationKey)
	if errors.Is(err, snapshot.ErrNotFound) {
		s.log.ErrorContext(ctx, "a committed snapshot is missing from the store", "snapshot", id, "key", *row.LocationKey)
		return nil, Snapshot{}, ErrSnapshotUnavailable.Say("The snapshot's content is missing from the store.")
	}
	if err != nil {
		return nil, Snapshot{}, s.storeError(ctx, "open a snapshot", err)
	}
	return content, snapshotOf(row), nil
}
