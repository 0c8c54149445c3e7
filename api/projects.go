package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Project gathers tasks.
type Project struct {
	ID                       uuid.UUID  `json:"id" format:"uuid"`
	CompanyID                uuid.UUID  `json:"companyId" format:"uuid"`
	Name                     string     `json:"name" maxLength:"200"`
	Visibility               Visibility `json:"visibility"`
	ExecutionWorkspacePolicy *Object    `json:"executionWorkspacePolicy" nullable:"true" doc:"How the project's tasks get their workspaces."`
	CreatedAt                Time       `json:"createdAt"`
	UpdatedAt                Time       `json:"updatedAt"`
}

func projectOf(p authority.Project) Project {
	return Project{
		ID: p.ID, CompanyID: p.CompanyID, Name: p.Name, Visibility: Visibility(p.Visibility),
		ExecutionWorkspacePolicy: objectOf(p.ExecutionWorkspacePolicy),
		CreatedAt:                Time(p.CreatedAt), UpdatedAt: Time(p.UpdatedAt),
	}
}

// ProjectCreate makes a project.
type ProjectCreate struct {
	Name                     string     `json:"name" minLength:"1" maxLength:"200"`
	Visibility               Visibility `json:"visibility,omitempty" default:"open"`
	ExecutionWorkspacePolicy *Object    `json:"executionWorkspacePolicy,omitempty" doc:"Berth reads enabled, defaultMode, defaultProjectWorkspaceId and authorizationPolicy.assignmentPolicy.mode, and keeps the rest as it is."`
}

// ProjectUpdate changes what it names.
type ProjectUpdate struct {
	Name                     *string        `json:"name,omitempty" minLength:"1" maxLength:"200"`
	Visibility               *Visibility    `json:"visibility,omitempty"`
	ExecutionWorkspacePolicy Change[Object] `json:"executionWorkspacePolicy,omitzero" doc:"As when a project is created; null takes the policy away."`
}

// ProjectPath names a project.
type ProjectPath struct {
	ProjectID uuid.UUID `path:"projectId" format:"uuid"`
}

func (s *server) projects() {
	register(s, endpoint{
		id: "listProjects", method: http.MethodGet, path: "/api/companies/{companyId}/projects", tag: "projects",
		summary: "List the projects of a company that the caller may read",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		PageQuery
	},
	) (*Answer[List[Project]], error) {
		list, err := s.rules.ListProjects(ctx, by, in.CompanyID, in.page())
		return listOf(list, err, projectOf)
	})
	register(s, endpoint{
		id: "createProject", method: http.MethodPost, path: "/api/companies/{companyId}/projects", tag: "projects",
		status: http.StatusCreated, summary: "Create a project", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body ProjectCreate
	},
	) (*Answer[Project], error) {
		project, err := s.rules.CreateProject(ctx, by, in.CompanyID, authority.ProjectInput{
			Name: in.Body.Name, Visibility: string(in.Body.Visibility),
			ExecutionWorkspacePolicy: in.Body.ExecutionWorkspacePolicy.raw(),
		}, in.once(ctx))
		return answer(project, err, projectOf)
	})
	register(s, endpoint{
		id: "getProject", method: http.MethodGet, path: "/api/projects/{projectId}", tag: "projects",
		summary: "Read a project",
	}, func(ctx context.Context, by authority.Principal, in *struct{ ProjectPath }) (*Answer[Project], error) {
		project, err := s.rules.GetProject(ctx, by, in.ProjectID)
		return answer(project, err, projectOf)
	})
	register(s, endpoint{
		id: "updateProject", method: http.MethodPatch, path: "/api/projects/{projectId}", tag: "projects",
		summary: "Change a project", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		ProjectPath
		Body ProjectUpdate
	},
	) (*Answer[Project], error) {
		project, err := s.rules.UpdateProject(ctx, by, in.ProjectID, authority.ProjectPatch{
			Name: in.Body.Name, Visibility: textOf(in.Body.Visibility),
			ExecutionWorkspacePolicy: change(in.Body.ExecutionWorkspacePolicy, rawOf),
		})
		return answer(project, err, projectOf)
	})
	s.projectWorkspaces()
	s.projectMembers()
}

func rawOf(o Object) json.RawMessage { return json.RawMessage(o) }

// ProjectWorkspace is a configured source of files.
type ProjectWorkspace struct {
	ID         uuid.UUID  `json:"id" format:"uuid"`
	CompanyID  uuid.UUID  `json:"companyId" format:"uuid"`
	ProjectID  uuid.UUID  `json:"projectId" format:"uuid"`
	Name       string     `json:"name" maxLength:"200"`
	SourceType SourceType `json:"sourceType"`
	Cwd        *string    `json:"cwd" nullable:"true" maxLength:"4096"`
	RepoURL    *string    `json:"repoUrl" nullable:"true" maxLength:"2000"`
	RepoRef    *string    `json:"repoRef" nullable:"true" maxLength:"500"`
	IsPrimary  bool       `json:"isPrimary" doc:"Whether the project's tasks get it when they name none."`
	CreatedAt  Time       `json:"createdAt"`
	UpdatedAt  Time       `json:"updatedAt"`
}

func projectWorkspaceOf(w authority.ProjectWorkspace) ProjectWorkspace {
	return ProjectWorkspace{
		ID: w.ID, CompanyID: w.CompanyID, ProjectID: w.ProjectID, Name: w.Name, SourceType: SourceType(w.SourceType),
		Cwd: w.Cwd, RepoURL: w.RepoURL, RepoRef: w.RepoRef, IsPrimary: w.IsPrimary,
		CreatedAt: Time(w.CreatedAt), UpdatedAt: Time(w.UpdatedAt),
	}
}

// ProjectWorkspaceCreate adds a source of files to a project.
type ProjectWorkspaceCreate struct {
	Name       string     `json:"name" minLength:"1" maxLength:"200"`
	SourceType SourceType `json:"sourceType"`
	Cwd        *string    `json:"cwd,omitempty" maxLength:"4096"`
	RepoURL    *string    `json:"repoUrl,omitempty" maxLength:"2000"`
	RepoRef    *string    `json:"repoRef,omitempty" maxLength:"500"`
	IsPrimary  bool       `json:"isPrimary,omitempty" doc:"A project has at most one primary source: this one takes the place of another."`
}

func (s *server) projectWorkspaces() {
	register(s, endpoint{
		id: "listProjectWorkspaces", method: http.MethodGet, path: "/api/projects/{projectId}/workspaces", tag: "projects",
		summary: "List a project's sources of files",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		ProjectPath
		PageQuery
	},
	) (*Answer[List[ProjectWorkspace]], error) {
		list, err := s.rules.ListProjectWorkspaces(ctx, by, in.ProjectID, in.page())
		return listOf(list, err, projectWorkspaceOf)
	})
	register(s, endpoint{
		id: "createProjectWorkspace", method: http.MethodPost, path: "/api/projects/{projectId}/workspaces", tag: "projects",
		status: http.StatusCreated, summary: "Add a source of files to a project", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		ProjectPath
		IdempotencyKey
		Body ProjectWorkspaceCreate
	},
	) (*Answer[ProjectWorkspace], error) {
		workspace, err := s.rules.AddProjectWorkspace(ctx, by, in.ProjectID, authority.ProjectWorkspaceInput{
			Name: in.Body.Name, SourceType: string(in.Body.SourceType), Cwd: in.Body.Cwd,
			RepoURL: in.Body.RepoURL, RepoRef: in.Body.RepoRef, IsPrimary: in.Body.IsPrimary,
		}, in.once(ctx))
		return answer(workspace, err, projectWorkspaceOf)
	})
}

// Principal names a user or an agent.
type Principal struct {
	PrincipalType PrincipalType `json:"principalType"`
	PrincipalID   uuid.UUID     `json:"principalId" format:"uuid"`
}

func (p Principal) ref() authority.PrincipalRef {
	return authority.PrincipalRef{Type: string(p.PrincipalType), ID: p.PrincipalID}
}

// ProjectMember may read a private project.
type ProjectMember struct {
	CompanyID     uuid.UUID     `json:"companyId" format:"uuid"`
	ProjectID     uuid.UUID     `json:"projectId" format:"uuid"`
	PrincipalType PrincipalType `json:"principalType"`
	PrincipalID   uuid.UUID     `json:"principalId" format:"uuid"`
	CreatedAt     Time          `json:"createdAt"`
}

func projectMemberOf(m authority.ProjectMember) ProjectMember {
	return ProjectMember{
		CompanyID: m.CompanyID, ProjectID: m.ProjectID, PrincipalType: PrincipalType(m.PrincipalType),
		PrincipalID: m.PrincipalID, CreatedAt: Time(m.CreatedAt),
	}
}

func (s *server) projectMembers() {
	register(s, endpoint{
		id: "listProjectMembers", method: http.MethodGet, path: "/api/projects/{projectId}/members", tag: "projects",
		summary: "List who may read a private project",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		ProjectPath
		PageQuery
	},
	) (*Answer[List[ProjectMember]], error) {
		list, err := s.rules.ListProjectMembers(ctx, by, in.ProjectID, in.page())
		return listOf(list, err, projectMemberOf)
	})
	register(s, endpoint{
		id: "addProjectMember", method: http.MethodPost, path: "/api/projects/{projectId}/members", tag: "projects",
		status: http.StatusCreated, summary: "Let a user or an agent read a private project",
		doc: "For operators. Adding a member again answers the first addition.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		ProjectPath
		Body Principal
	},
	) (*Answer[ProjectMember], error) {
		member, err := s.rules.AddProjectMember(ctx, by, in.ProjectID, in.Body.ref())
		return answer(member, err, projectMemberOf)
	})
}
