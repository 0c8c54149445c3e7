package authority

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// ProjectWorkspace is a configured source of files. At most one of a project's is its primary.
type ProjectWorkspace struct {
	ID         uuid.UUID
	CompanyID  uuid.UUID
	ProjectID  uuid.UUID
	Name       string
	SourceType string
	Cwd        *string
	RepoURL    *string
	RepoRef    *string
	IsPrimary  bool
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

func projectWorkspaceOf(row db.ProjectWorkspace) ProjectWorkspace {
	return ProjectWorkspace{
		ID: row.ID, CompanyID: row.CompanyID, ProjectID: row.ProjectID, Name: row.Name, SourceType: row.SourceType,
		Cwd: row.Cwd, RepoURL: row.RepoUrl, RepoRef: row.RepoRef, IsPrimary: row.IsPrimary,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
}

// ProjectWorkspaceInput is what a new source is made from. A path needs Cwd, a repository RepoURL
// or the Cwd of a clone. With IsPrimary it takes the place of the project's primary source.
type ProjectWorkspaceInput struct {
	Name       string
	SourceType string
	Cwd        *string
	RepoURL    *string
	RepoRef    *string
	IsPrimary  bool
}

var sourceTypes = []string{"local_path", "git_repo", "remote_managed", "non_git_path", "empty"}

func (in ProjectWorkspaceInput) validate() error {
	refused := validation{}
	refused.text("body.name", in.Name)
	refused.text("body.sourceType", in.SourceType)
	refused.oneOf("body.sourceType", in.SourceType, sourceTypes)
	for _, given := range []struct {
		location string
		value    *string
	}{{"body.cwd", in.Cwd}, {"body.repoUrl", in.RepoURL}, {"body.repoRef", in.RepoRef}} {
		if given.value != nil {
			refused.text(given.location, *given.value)
		}
	}
	switch in.SourceType {
	case "local_path", "non_git_path":
		if in.Cwd == nil {
			refused.add("body.cwd", "is needed: it is where the files are")
		}
	case "git_repo":
		if in.RepoURL == nil && in.Cwd == nil {
			refused.add("body.repoUrl", "is needed, unless cwd says where a clone is")
		}
	}
	return refused.err()
}

// AddProjectWorkspace makes a source of a project. Operators only.
func (s *Service) AddProjectWorkspace(
	ctx context.Context, by Principal, project uuid.UUID, in ProjectWorkspaceInput, once Once,
) (ProjectWorkspace, error) {
	of, err := s.administeredProject(ctx, s.pool, by, project)
	if err != nil {
		return ProjectWorkspace{}, err
	}
	if err := in.validate(); err != nil {
		return ProjectWorkspace{}, err
	}
	added, _, err := createOnce(ctx, s, by, &of.CompanyID, once, func(tx pgx.Tx) (ProjectWorkspace, error) {
		if in.IsPrimary {
			if err := s.clearPrimarySource(ctx, tx, of.ID); err != nil {
				return ProjectWorkspace{}, err
			}
		}
		row, err := s.queries.InsertProjectWorkspace(ctx, tx, db.InsertProjectWorkspaceParams{
			ID: newID(), CompanyID: of.CompanyID, ProjectID: of.ID, Name: in.Name, SourceType: in.SourceType,
			Cwd: in.Cwd, RepoUrl: in.RepoURL, RepoRef: in.RepoRef, IsPrimary: in.IsPrimary,
		})
		if err != nil {
			return ProjectWorkspace{}, fmt.Errorf("insert a source: %w", err)
		}
		return projectWorkspaceOf(row), nil
	})
	return added, err
}

// clearPrimarySource takes the mark from the project's primary source, and keeps others from
// setting it until the transaction ends.
func (s *Service) clearPrimarySource(ctx context.Context, tx pgx.Tx, project uuid.UUID) error {
	if _, err := s.queries.LockProject(ctx, tx, project); err != nil {
		return fmt.Errorf("lock the project: %w", err)
	}
	if _, err := s.queries.ClearPrimarySource(ctx, tx, project); err != nil {
		return fmt.Errorf("unmark the primary source: %w", err)
	}
	return nil
}

// ListProjectWorkspaces lists the sources of a project, the oldest first.
func (s *Service) ListProjectWorkspaces(
	ctx context.Context, by Principal, project uuid.UUID, page Page,
) (List[ProjectWorkspace], error) {
	after, err := page.after()
	if err != nil {
		return List[ProjectWorkspace]{}, err
	}
	of, err := s.readableProject(ctx, s.pool, by, project)
	if err != nil {
		return List[ProjectWorkspace]{}, err
	}
	params := db.ListProjectWorkspacesParams{ProjectID: of.ID, Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListProjectWorkspaces(ctx, s.pool, params)
	if err != nil {
		return List[ProjectWorkspace]{}, fmt.Errorf("list sources: %w", err)
	}
	return pageOf(page, rows, projectWorkspaceOf, func(r db.ProjectWorkspace) place {
		return place{At: r.CreatedAt, ID: r.ID}
	}), nil
}
