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

// requireSource asks again what the choice of a configured source needs: that the caller may use
// the source and, in shared mode, that who chose may write in the project.
func (a *application) requireSource(ctx context.Context) error {
	chosen := a.pending.Selection
	source, err := a.service.sourceFor(ctx, a.tx, a.by, sourceQuestion{
		company: a.task.CompanyID, project: a.task.ProjectID, source: *chosen.ProjectWorkspaceID,
	})
	if errors.Is(err, ErrProjectWorkspaceNotFound) {
		return ErrWorkspaceUnavailable.Say("The source that was chosen is not there for this task: choose again.")
	}
	if err != nil {
		return err
	}
	if !slices.Contains(fetchableSources, source.SourceType) {
		return ErrSourceUnsupported.Say("Files of a source of type %s cannot be fetched yet.", source.SourceType)
	}
	if chosen.Mode != SourceShared {
		return nil
	}
	chooser := a.chooser()
	if a.task.Visibility == visibilityPrivate && chooser.Role != RoleOperator {
		return ErrNotAllowed.Say("A private task would shut others out of the workspace that they share: an operator may choose it.")
	}
	err = a.service.requireProjectWorkspaceWrite(ctx, a.tx, chooser, a.task, source.ProjectID)
	if errors.Is(err, ErrProjectNotFound) {
		return errChooserLost
	}
	return err
}

// sharedWorkspace is the id of a workspace that is about to be made, with its empty saved state,
// whose bytes are stored already.
type sharedWorkspace struct {
	id    uuid.UUID
	first db.InsertSnapshotParams
}

// sharedWorkspaceNeeded never leaves the package: the source has no workspace to share yet, and
// the application starts over once the bytes of a new one are stored.
type sharedWorkspaceNeeded struct{ company uuid.UUID }

func (*sharedWorkspaceNeeded) Error() string { return "the source has no workspace to share yet" }

func (s *Service) prepareShared(ctx context.Context, by Principal, company uuid.UUID) (*sharedWorkspace, error) {
	id := newID()
	first, err := s.putEmptySnapshot(ctx, company, id, 0)
	first.CreatedBy = by.Actor()
	return &sharedWorkspace{id: id, first: first}, err
}

// shared finds the workspace that the tasks of a source share, or makes the first.
func (a *application) shared(ctx context.Context, source uuid.UUID) (uuid.UUID, error) {
	q, company := a.service.queries, a.task.CompanyID
	row, err := q.LockSource(ctx, a.tx, db.LockSourceParams{CompanyID: company, ID: source})
	if err != nil {
		return uuid.Nil, fmt.Errorf("lock a project workspace: %w", err)
	}
	id, err := q.FindSharedWorkspace(ctx, a.tx, db.FindSharedWorkspaceParams{CompanyID: company, ProjectWorkspaceID: source})
	switch {
	case err == nil:
		return id, nil
	case !errors.Is(err, pgx.ErrNoRows):
		return uuid.Nil, fmt.Errorf("find the workspace that tasks share: %w", err)
	case a.prepared == nil:
		return uuid.Nil, &sharedWorkspaceNeeded{company: company}
	}
	made, err := a.service.insertWorkspace(ctx, a.tx, db.InsertWorkspaceParams{
		ID: a.prepared.id, CompanyID: company, ProjectID: &row.ProjectID, ProjectWorkspaceID: &row.ID, Name: row.Name,
		Mode: "shared_workspace", StrategyType: "project_primary", ProviderType: "cloud_sandbox", Status: "active",
		Source: emptySource,
	}, a.prepared.first)
	if err != nil {
		return uuid.Nil, err
	}
	return made.ID, a.service.recordCreation(ctx, a.tx, a.by, made, nil)
}
