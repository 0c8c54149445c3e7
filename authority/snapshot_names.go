package authority

import (
	"context"

	"github.com/google/uuid"

	"berth/db"
)

// NameSnapshot gives a snapshot a name, or with nil takes it away. A named one keeps its bytes for as long as it has the
// name, which no other of its workspace has: ErrSnapshotNameTaken. For who may write in the company, and for the writer.
func (s *Service) NameSnapshot(ctx context.Context, by Principal, workspace, id uuid.UUID, name *string) (Snapshot, error) {
	row, err := s.visibleSnapshot(ctx, by, workspace, id)
	if err != nil {
		return Snapshot{}, err
	}
	if err := s.mayName(ctx, by, row); err != nil {
		return Snapshot{}, err
	}
	if name != nil {
		var v validation
		v.text("body.name", *name)
		if err := v.err(); err != nil {
			return Snapshot{}, err
		}
	}
	named, err := s.queries.NameSnapshot(ctx, s.pool, db.NameSnapshotParams{
		Name: name, CompanyID: row.CompanyID, WorkspaceID: workspace, SnapshotID: id,
	})
	if named, err = found(named, err, ErrSnapshotNotFound, "name a snapshot"); err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(named), nil
}

func (s *Service) mayName(ctx context.Context, by Principal, row db.Snapshot) error {
	if by.Role != RoleRun {
		return s.requireCompanyWrite(ctx, s.pool, by, row.CompanyID)
	}
	workspace, err := s.queries.GetWorkspace(ctx, s.pool, db.GetWorkspaceParams{CompanyID: row.CompanyID, WorkspaceID: row.WorkspaceID})
	if err != nil {
		return err
	}
	if workspace.WriterRunID == nil || *workspace.WriterRunID != by.RunID {
		return ErrNotAllowed.Say("Of the runs only the workspace's writer names its snapshots.")
	}
	return nil
}
