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

// Workspace is an execution workspace: a durable file tree with a life cycle, and its authority.
// UpdatedAt tells of changes by people (its name, its status); the authority has a history of its own.
type Workspace struct {
	ID                              uuid.UUID
	CompanyID                       uuid.UUID
	ProjectID                       *uuid.UUID
	ProjectWorkspaceID              *uuid.UUID
	SourceIssueID                   *uuid.UUID
	DerivedFromExecutionWorkspaceID *uuid.UUID
	Name                            string
	Mode                            string
	StrategyType                    string
	ProviderType                    string
	Cwd                             *string
	Status                          string
	LifecycleGeneration             int64
	Authority                       Authority
	CreatedAt                       time.Time
	UpdatedAt                       time.Time
}

// Authority says who may write a workspace, under which epoch, from which saved state. Dirty means
// that the writer's files may differ from what is saved.
type Authority struct {
	Epoch       int64
	SnapshotID  *uuid.UUID
	Source      json.RawMessage
	Location    json.RawMessage
	WriterRunID *uuid.UUID
	Dirty       bool
}

func workspaceOf(row db.ExecutionWorkspace) Workspace {
	return Workspace{
		ID: row.ID, CompanyID: row.CompanyID, ProjectID: row.ProjectID, ProjectWorkspaceID: row.ProjectWorkspaceID,
		SourceIssueID: row.SourceIssueID, DerivedFromExecutionWorkspaceID: row.DerivedFromExecutionWorkspaceID,
		Name: row.Name, Mode: row.Mode, StrategyType: row.StrategyType, ProviderType: row.ProviderType, Cwd: row.Cwd,
		Status: row.Status, LifecycleGeneration: row.LifecycleGeneration,
		Authority: Authority{
			Epoch: row.Epoch, SnapshotID: row.SnapshotID, Source: row.Source, Location: row.Location,
			WriterRunID: row.WriterRunID, Dirty: row.Dirty,
		},
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
}

// WorkspaceFilter narrows a list of workspaces. Nil fields do not.
type WorkspaceFilter struct {
	Status    *string
	ProjectID *uuid.UUID
}

// WorkspacePatch changes a workspace. Nil fields stay.
type WorkspacePatch struct {
	Name   *string
	Status *string
}

var workspaceStatuses = []string{"active", "idle", "in_review", "archived", "cleanup_failed"}

// GetWorkspace returns a workspace that the caller may read, or ErrWorkspaceNotFound.
func (s *Service) GetWorkspace(ctx context.Context, by Principal, id uuid.UUID) (Workspace, error) {
	if by.Role == RoleRecovery {
		row, err := s.recoveredWorkspace(ctx, s.pool, by, id)
		if err != nil {
			return Workspace{}, err
		}
		return workspaceOf(row), nil
	}
	row, err := s.readableWorkspace(ctx, s.pool, by, id)
	if err != nil {
		return Workspace{}, err
	}
	return workspaceOf(row), nil
}

// ListWorkspaces returns those of a company's workspaces that the caller may read, oldest first.
func (s *Service) ListWorkspaces(ctx context.Context, by Principal, company uuid.UUID, filter WorkspaceFilter, page Page) (List[Workspace], error) {
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Workspace]{}, err
	}
	after, err := page.after()
	if err != nil {
		return List[Workspace]{}, err
	}
	readerType, readerID := by.reader()
	params := db.ListWorkspacesParams{
		CompanyID: company, Status: filter.Status, ProjectID: filter.ProjectID,
		ReaderType: readerType, ReaderID: readerID, Rows: page.rows(),
	}
	if after != nil {
		params.AfterAt, params.AfterID = &after.At, &after.ID
	}
	rows, err := s.queries.ListWorkspaces(ctx, s.pool, params)
	if err != nil {
		return List[Workspace]{}, fmt.Errorf("list workspaces: %w", err)
	}
	return pageOf(page, rows, workspaceOf, func(row db.ExecutionWorkspace) place { return place{At: row.CreatedAt, ID: row.ID} }), nil
}

// UpdateWorkspace renames, closes or reopens a workspace. While there is a writer, or somebody waits
// to be it, closing is ErrWorkspaceInUse for everybody. Members close as archived and reopen as active or idle;
// operators set any status.
func (s *Service) UpdateWorkspace(ctx context.Context, by Principal, id uuid.UUID, patch WorkspacePatch) (Workspace, error) {
	readable, err := s.readableWorkspace(ctx, s.pool, by, id)
	if err != nil {
		return Workspace{}, err
	}
	if err := s.requireCompanyWrite(ctx, s.pool, by, readable.CompanyID); err != nil {
		return Workspace{}, err
	}
	if err := patch.validate(by); err != nil {
		return Workspace{}, err
	}
	var changed db.ExecutionWorkspace
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		locked, err := s.queries.LockWorkspace(ctx, tx, db.LockWorkspaceParams{CompanyID: readable.CompanyID, WorkspaceID: id})
		if err != nil {
			return fmt.Errorf("lock the workspace: %w", err)
		}
		changed = locked
		if patch.Status != nil && *patch.Status != locked.Status {
			if changed, err = s.setWorkspaceStatus(ctx, tx, by, locked, *patch.Status); err != nil {
				return err
			}
		}
		if patch.Name == nil {
			return nil
		}
		changed, err = s.queries.RenameWorkspace(ctx, tx, db.RenameWorkspaceParams{
			Name: *patch.Name, CompanyID: locked.CompanyID, WorkspaceID: id, Epoch: locked.Epoch,
		})
		return err
	})
	if err != nil {
		return Workspace{}, err
	}
	return workspaceOf(changed), nil
}

func (patch WorkspacePatch) validate(by Principal) error {
	var v validation
	if patch.Name != nil {
		v.text("body.name", *patch.Name)
	}
	if patch.Status != nil {
		v.oneOf("body.status", *patch.Status, workspaceStatuses)
		if by.Role != RoleOperator && (*patch.Status == "cleanup_failed" || *patch.Status == "in_review") {
			return ErrNotAllowed.Say("Only an operator sets the status %s.", *patch.Status)
		}
	}
	return v.err()
}

// inUseText says what has to happen before a workspace with a writer can be closed.
func inUseText(w db.ExecutionWorkspace) string {
	if w.Dirty {
		return "The workspace has a writer with unsaved work: it saves and releases, an operator recovers the work, or takes over, first."
	}
	return "The workspace has a writer: it releases, hands over, or an operator takes over, first."
}

// setWorkspaceStatus moves a locked workspace to another status. Closing and reopening begin a new
// generation, so that nothing that was decided about the one before still applies.
func (s *Service) setWorkspaceStatus(ctx context.Context, tx pgx.Tx, by Principal, locked db.ExecutionWorkspace, status string) (db.ExecutionWorkspace, error) {
	kind, generations := "workspace.status_changed", int64(0)
	switch before, after := closedStatus(locked.Status), closedStatus(status); {
	case after && locked.WriterRunID != nil:
		return locked, ErrWorkspaceInUse.Say("%s", inUseText(locked))
	case after && !before:
		waiting, err := s.queries.CountPlaces(ctx, tx, db.CountPlacesParams{CompanyID: locked.CompanyID, WorkspaceID: locked.ID})
		if err != nil {
			return locked, fmt.Errorf("count who waits: %w", err)
		}
		if waiting > 0 {
			return locked, ErrWorkspaceInUse.Say("%d runs wait for the workspace: they give up their places, or end, first.", waiting)
		}
		kind, generations = "workspace.closed", 1
	case before && !after:
		kind, generations = "workspace.reopened", 1
	}
	changed, err := s.queries.SetWorkspaceStatus(ctx, tx, db.SetWorkspaceStatusParams{
		Status: status, Generations: generations, CompanyID: locked.CompanyID, WorkspaceID: locked.ID,
		Epoch: locked.Epoch, LifecycleGeneration: locked.LifecycleGeneration,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return locked, ErrUnavailable.Say("The workspace changed meanwhile; the call is safe to repeat.")
	}
	if err != nil {
		return locked, fmt.Errorf("set the status: %w", err)
	}
	data, _ := json.Marshal(map[string]any{"from": locked.Status, "to": status, "lifecycleGeneration": changed.LifecycleGeneration})
	return changed, s.recordEvent(ctx, tx, db.InsertEventParams{
		CompanyID: locked.CompanyID, Kind: kind, WorkspaceID: &locked.ID, Epoch: &locked.Epoch, Actor: by.Actor(), Data: data,
	})
}
