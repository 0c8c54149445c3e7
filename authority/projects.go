package authority

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Project groups tasks. A private one is there only for its members, and so is every workspace that
// belongs to it. ExecutionWorkspacePolicy is nil or an object; see projectPolicy for what Berth
// reads of it, and everything else in it is kept as it came.
type Project struct {
	ID                       uuid.UUID
	CompanyID                uuid.UUID
	Name                     string
	Visibility               string
	ExecutionWorkspacePolicy json.RawMessage
	CreatedAt                time.Time
	UpdatedAt                time.Time
}

func projectOf(row db.Project) Project { return Project(row) }

// ProjectInput is what a new project is made from.
type ProjectInput struct {
	Name                     string
	Visibility               string          // "" means open
	ExecutionWorkspacePolicy json.RawMessage // an object, or nil
}

// ProjectPatch changes what is given.
type ProjectPatch struct {
	Name                     *string
	Visibility               *string
	ExecutionWorkspacePolicy Optional[json.RawMessage]
}

// ProjectMember is a principal that may read a private project.
type ProjectMember struct {
	CompanyID     uuid.UUID
	ProjectID     uuid.UUID
	PrincipalType string
	PrincipalID   uuid.UUID
	CreatedAt     time.Time
}

func projectMemberOf(row db.ProjectMember) ProjectMember {
	return ProjectMember{
		CompanyID: row.CompanyID, ProjectID: row.ProjectID,
		PrincipalType: row.PrincipalType, PrincipalID: row.PrincipalID, CreatedAt: row.CreatedAt,
	}
}

// CreateProject makes a project. Operators only.
func (s *Service) CreateProject(
	ctx context.Context, by Principal, company uuid.UUID, in ProjectInput, once Once,
) (Project, error) {
	if err := s.requireCompanyAdministration(ctx, s.pool, by, company); err != nil {
		return Project{}, err
	}
	if in.Visibility == "" {
		in.Visibility = visibilityOpen
	}
	refused := validation{}
	refused.text("body.name", in.Name)
	refused.oneOf("body.visibility", in.Visibility, visibilities)
	refused.object("body.executionWorkspacePolicy", in.ExecutionWorkspacePolicy)
	if err := refused.err(); err != nil {
		return Project{}, err
	}
	project, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Project, error) {
		row, err := s.queries.InsertProject(ctx, tx, db.InsertProjectParams{
			ID: newID(), CompanyID: company, Name: in.Name, Visibility: in.Visibility,
			ExecutionWorkspacePolicy: in.ExecutionWorkspacePolicy,
		})
		if err != nil {
			return Project{}, fmt.Errorf("insert a project: %w", err)
		}
		return projectOf(row), nil
	})
	return project, err
}

// GetProject returns a project that the caller may read.
func (s *Service) GetProject(ctx context.Context, by Principal, id uuid.UUID) (Project, error) {
	row, err := s.readableProject(ctx, s.pool, by, id)
	return projectOf(row), err
}

// ListProjects lists the projects of a company that the caller may read, the oldest first.
func (s *Service) ListProjects(ctx context.Context, by Principal, company uuid.UUID, page Page) (List[Project], error) {
	after, err := page.after()
	if err != nil {
		return List[Project]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Project]{}, err
	}
	params := db.ListProjectsParams{CompanyID: company, Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	params.ReaderType, params.ReaderID = by.reader()
	rows, err := s.queries.ListProjects(ctx, s.pool, params)
	if err != nil {
		return List[Project]{}, fmt.Errorf("list projects: %w", err)
	}
	return pageOf(page, rows, projectOf, func(r db.Project) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}

// UpdateProject changes a project. Operators only.
func (s *Service) UpdateProject(ctx context.Context, by Principal, id uuid.UUID, patch ProjectPatch) (Project, error) {
	if _, err := s.administeredProject(ctx, s.pool, by, id); err != nil {
		return Project{}, err
	}
	params := db.UpdateProjectParams{
		ID: id, Name: patch.Name, Visibility: patch.Visibility, SetPolicy: patch.ExecutionWorkspacePolicy.Set,
	}
	if policy := patch.ExecutionWorkspacePolicy.Value; policy != nil {
		params.ExecutionWorkspacePolicy = *policy
	}
	refused := validation{}
	if patch.Name != nil {
		refused.text("body.name", *patch.Name)
	}
	if patch.Visibility != nil {
		refused.text("body.visibility", *patch.Visibility)
		refused.oneOf("body.visibility", *patch.Visibility, visibilities)
	}
	refused.object("body.executionWorkspacePolicy", params.ExecutionWorkspacePolicy)
	if err := refused.err(); err != nil {
		return Project{}, err
	}
	row, err := s.queries.UpdateProject(ctx, s.pool, params)
	row, err = found(row, err, ErrProjectNotFound, "change the project")
	return projectOf(row), err
}

// administeredProject is readableProject, and then refuses all but operators.
func (s *Service) administeredProject(ctx context.Context, q db.DBTX, by Principal, id uuid.UUID) (db.Project, error) {
	row, err := s.readableProject(ctx, q, by, id)
	if err != nil {
		return db.Project{}, err
	}
	return row, by.requireOperator()
}

// AddProjectMember lets a principal read a private project. Operators only. Adding it again answers
// the membership that is there. ErrAgentNotFound: the company has no such agent.
func (s *Service) AddProjectMember(
	ctx context.Context, by Principal, project uuid.UUID, member PrincipalRef,
) (ProjectMember, error) {
	of, err := s.administeredProject(ctx, s.pool, by, project)
	if err != nil {
		return ProjectMember{}, err
	}
	if err := member.validate(); err != nil {
		return ProjectMember{}, err
	}
	var added db.ProjectMember
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.requirePrincipal(ctx, tx, of.CompanyID, member); err != nil {
			return err
		}
		_, err := s.queries.InsertProjectMember(ctx, tx, db.InsertProjectMemberParams{
			CompanyID: of.CompanyID, ProjectID: of.ID, PrincipalType: member.Type, PrincipalID: member.ID,
		})
		if err != nil {
			return fmt.Errorf("insert a project member: %w", err)
		}
		// In a later statement: one that another call added meanwhile is not in the insert's snapshot.
		added, err = s.queries.GetProjectMember(ctx, tx, db.GetProjectMemberParams{
			ProjectID: of.ID, PrincipalType: member.Type, PrincipalID: member.ID,
		})
		return err
	})
	if err != nil {
		return ProjectMember{}, fmt.Errorf("add a project member: %w", err)
	}
	return projectMemberOf(added), nil
}

// ListProjectMembers lists who may read a project if it is private, the oldest first.
func (s *Service) ListProjectMembers(
	ctx context.Context, by Principal, project uuid.UUID, page Page,
) (List[ProjectMember], error) {
	after, err := page.after()
	if err != nil {
		return List[ProjectMember]{}, err
	}
	of, err := s.readableProject(ctx, s.pool, by, project)
	if err != nil {
		return List[ProjectMember]{}, err
	}
	params := db.ListProjectMembersParams{ProjectID: of.ID, Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListProjectMembers(ctx, s.pool, params)
	if err != nil {
		return List[ProjectMember]{}, fmt.Errorf("list project members: %w", err)
	}
	return pageOf(page, rows, projectMemberOf, func(r db.ProjectMember) place {
		return place{At: r.CreatedAt, ID: r.PrincipalID}
	}), nil
}
