package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// WorkspaceInput makes a workspace. Empty strings mean the default: isolated_workspace,
// task_directory, cloud_sandbox, active. Authority imports one that was kept elsewhere; only
// operators may, and only with it may Status be a closed one.
type WorkspaceInput struct {
	Name               string
	ProjectID          *uuid.UUID
	ProjectWorkspaceID *uuid.UUID
	SourceIssueID      *uuid.UUID
	Mode               string
	StrategyType       string
	ProviderType       string
	Cwd                *string
	Status             string
	Source             json.RawMessage
	Authority          *AuthorityImport
	From               *Branching // nil: it begins with nothing, or is imported
}

// AuthorityImport is the authority of a workspace that moves here. A writer, which must be a run of
// the company, opens a tenure at the epoch. A snapshot id is recorded as unavailable until an
// operator brings its bytes; none means that nothing was saved.
type AuthorityImport struct {
	Epoch       int64
	SnapshotID  *uuid.UUID
	Source      json.RawMessage
	Location    json.RawMessage
	WriterRunID *uuid.UUID
	Dirty       bool
}

var (
	workspaceModes         = []string{"isolated_workspace", "operator_branch", "shared_workspace", "adapter_managed", "cloud_sandbox"}
	workspaceStrategies    = []string{"project_primary", "git_worktree", "adapter_managed", "cloud_sandbox", "task_directory"}
	workspaceProviderTypes = []string{"local_fs", "git_worktree", "adapter_managed", "cloud_sandbox"}
)

// CreateWorkspace makes a workspace with an empty saved state, or imports one with its authority.
func (s *Service) CreateWorkspace(ctx context.Context, by Principal, company uuid.UUID, in WorkspaceInput, once Once) (Workspace, error) {
	if err := s.requireCompanyWrite(ctx, s.pool, by, company); err != nil {
		return Workspace{}, err
	}
	if in.Authority != nil && by.Role != RoleOperator {
		return Workspace{}, ErrNotAllowed.Say("Only an operator imports an authority.")
	}
	if err := in.validate(); err != nil {
		return Workspace{}, err
	}
	id := newID()
	first, err := s.firstSnapshot(ctx, by, company, id, &in)
	if err != nil {
		return Workspace{}, err
	}
	workspace, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Workspace, error) {
		if err := errors.Join(s.checkWorkspaceReferences(ctx, tx, by, company, in), s.stillReadsOrigin(ctx, tx, by, in)); err != nil {
			return Workspace{}, err
		}
		row, err := s.insertWorkspace(ctx, tx, in.row(id, company), first)
		if err != nil {
			return Workspace{}, err
		}
		return workspaceOf(row), s.recordCreation(ctx, tx, by, row, in.Authority)
	})
	return workspace, err
}

func (in WorkspaceInput) validate() error {
	var v validation
	v.text("body.name", in.Name)
	v.oneOf("body.mode", in.Mode, workspaceModes)
	v.oneOf("body.strategyType", in.StrategyType, workspaceStrategies)
	v.oneOf("body.providerType", in.ProviderType, workspaceProviderTypes)
	v.oneOf("body.status", in.Status, workspaceStatuses)
	v.object("body.source", in.Source)
	if in.From != nil {
		in.validateBranch(&v)
	}
	a := in.Authority
	if a == nil {
		if in.Source != nil && isObject(in.Source) && !fetchable(in.Source) {
			return ErrSourceUnsupported
		}
		if closedStatus(in.Status) {
			v.add("body.status", "a new workspace is open")
		}
		return v.err()
	}
	v.object("body.authority.source", a.Source)
	v.object("body.authority.location", a.Location)
	if a.Epoch < 0 || a.Epoch > maximumEpoch {
		v.add("body.authority.epoch", "is not between 0 and 2^53-1")
	}
	if a.Dirty && a.WriterRunID == nil {
		v.add("body.authority.dirty", "a dirty workspace has a writer")
	}
	if a.WriterRunID != nil && closedStatus(in.Status) {
		v.add("body.status", "a closed workspace has no writer")
	}
	if in.Source != nil {
		v.add("body.source", "is given by the authority that is imported")
	}
	return v.err()
}

// validateBranch refuses what a branch gets from its origin.
func (in WorkspaceInput) validateBranch(v *validation) {
	const origins = "is the origin's: leave it out"
	for location, given := range map[string]bool{
		"body.authority": in.Authority != nil, "body.source": in.Source != nil,
		"body.projectId": in.ProjectID != nil, "body.projectWorkspaceId": in.ProjectWorkspaceID != nil,
	} {
		if given {
			v.add(location, origins)
		}
	}
}

// row is the workspace as it is recorded, before it names its snapshot.
func (in WorkspaceInput) row(id, company uuid.UUID) db.InsertWorkspaceParams {
	params := db.InsertWorkspaceParams{
		ID: id, CompanyID: company, ProjectID: in.ProjectID, ProjectWorkspaceID: in.ProjectWorkspaceID,
		SourceIssueID: in.SourceIssueID, Name: in.Name, Cwd: in.Cwd,
		Mode:         orDefault(in.Mode, "isolated_workspace"),
		StrategyType: orDefault(in.StrategyType, "task_directory"),
		ProviderType: orDefault(in.ProviderType, "cloud_sandbox"),
		Status:       orDefault(in.Status, "active"),
		Source:       in.Source,
	}
	if in.From != nil {
		params.DerivedFromExecutionWorkspaceID = &in.From.WorkspaceID
	}
	if a := in.Authority; a != nil {
		params.Epoch, params.Source, params.Location = a.Epoch, a.Source, a.Location
		params.WriterRunID, params.Dirty = a.WriterRunID, a.Dirty
		if a.Dirty {
			params.DirtyMarks = 1
		}
	}
	if params.Source == nil {
		params.Source = emptySource
	}
	return params
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// firstSnapshot is what a new workspace has saved: nothing, or what its origin has, whose bytes are stored here; or what
// the import says, whose bytes are not here yet.
func (s *Service) firstSnapshot(ctx context.Context, by Principal, company, workspace uuid.UUID, in *WorkspaceInput) (db.InsertSnapshotParams, error) {
	if in.From != nil {
		return s.branch(ctx, by, company, workspace, in)
	}
	a := in.Authority
	if a != nil && a.SnapshotID != nil {
		return db.InsertSnapshotParams{
			ID: *a.SnapshotID, CompanyID: company, WorkspaceID: workspace, Epoch: a.Epoch,
			State: "unavailable", CreatedBy: by.Actor(),
		}, nil
	}
	epoch := int64(0)
	if a != nil {
		epoch = a.Epoch
	}
	first, err := s.putEmptySnapshot(ctx, company, workspace, epoch)
	first.CreatedBy = by.Actor()
	return first, err
}

// checkWorkspaceReferences answers an id that is unknown, of another company or not readable alike.
func (s *Service) checkWorkspaceReferences(ctx context.Context, tx pgx.Tx, by Principal, company uuid.UUID, in WorkspaceInput) error {
	if in.ProjectID != nil {
		project, err := s.readableProject(ctx, tx, by, *in.ProjectID)
		if err != nil {
			return err
		}
		if project.CompanyID != company {
			return ErrProjectNotFound
		}
	}
	if in.SourceIssueID != nil {
		issue, err := s.readableIssue(ctx, tx, by, *in.SourceIssueID)
		if err != nil {
			return err
		}
		if issue.CompanyID != company {
			return ErrIssueNotFound
		}
	}
	if in.ProjectWorkspaceID != nil {
		source, err := s.queries.GetSource(ctx, tx, db.GetSourceParams{CompanyID: company, ID: *in.ProjectWorkspaceID})
		if _, err = found(source, err, ErrProjectWorkspaceNotFound, "read the project workspace"); err != nil {
			return err
		}
		if _, err := s.readableProject(ctx, tx, by, source.ProjectID); errors.Is(err, ErrProjectNotFound) {
			return ErrProjectWorkspaceNotFound
		} else if err != nil {
			return err
		}
	}
	if in.Authority != nil && in.Authority.WriterRunID != nil {
		return s.checkImportedWriter(ctx, tx, company, *in.Authority.WriterRunID)
	}
	return nil
}

// checkImportedWriter locks the run, so that it does not end or reserve elsewhere meanwhile.
func (s *Service) checkImportedWriter(ctx context.Context, tx pgx.Tx, company, run uuid.UUID) error {
	row, err := s.queries.ShareLockRun(ctx, tx, db.ShareLockRunParams{CompanyID: company, RunID: run})
	_, err = found(row, err, ErrRunNotFound, "lock the writer's run")
	return err
}

// recordCreation puts a new workspace on record, and begins the tenure of an imported writer.
func (s *Service) recordCreation(ctx context.Context, tx pgx.Tx, by Principal, row db.ExecutionWorkspace, a *AuthorityImport) error {
	kind := "workspace.created"
	if a != nil {
		kind = "workspace.imported"
	}
	if err := s.recordEvent(ctx, tx, db.InsertEventParams{
		CompanyID: row.CompanyID, Kind: kind, WorkspaceID: &row.ID, IssueID: row.SourceIssueID,
		RunID: row.WriterRunID, Epoch: &row.Epoch, Actor: by.Actor(),
	}); err != nil {
		return err
	}
	if row.WriterRunID == nil {
		return nil
	}
	run, err := s.queries.ShareLockRun(ctx, tx, db.ShareLockRunParams{CompanyID: row.CompanyID, RunID: *row.WriterRunID})
	if err != nil {
		return fmt.Errorf("read the writer's run: %w", err)
	}
	_, err = s.queries.OpenTenure(ctx, tx, db.OpenTenureParams{
		ID: newID(), CompanyID: row.CompanyID, WorkspaceID: row.ID, Epoch: row.Epoch, RunID: run.ID,
		IssueID: run.BoundIssueID, StartedBy: by.Actor(),
	})
	if err != nil {
		return fmt.Errorf("begin the imported writer's tenure: %w", err)
	}
	return nil
}
