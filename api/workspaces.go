package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// ExecutionWorkspace is a durable file tree, with who may write it.
type ExecutionWorkspace struct {
	ID                              uuid.UUID          `json:"id" format:"uuid"`
	CompanyID                       uuid.UUID          `json:"companyId" format:"uuid"`
	ProjectID                       *uuid.UUID         `json:"projectId" format:"uuid" nullable:"true"`
	ProjectWorkspaceID              *uuid.UUID         `json:"projectWorkspaceId" format:"uuid" nullable:"true"`
	SourceIssueID                   *uuid.UUID         `json:"sourceIssueId" format:"uuid" nullable:"true" doc:"The task that it was made for."`
	DerivedFromExecutionWorkspaceID *uuid.UUID         `json:"derivedFromExecutionWorkspaceId" format:"uuid" nullable:"true"`
	Name                            string             `json:"name" maxLength:"500"`
	Mode                            WorkspaceMode      `json:"mode"`
	StrategyType                    WorkspaceStrategy  `json:"strategyType"`
	ProviderType                    WorkspaceProvider  `json:"providerType"`
	Cwd                             *string            `json:"cwd" nullable:"true" maxLength:"4096"`
	Status                          WorkspaceStatus    `json:"status"`
	LifecycleGeneration             int64              `json:"lifecycleGeneration" minimum:"0" maximum:"9007199254740991" doc:"How often it was closed and reopened."`
	Authority                       WorkspaceAuthority `json:"authority"`
	CreatedAt                       Time               `json:"createdAt"`
	UpdatedAt                       Time               `json:"updatedAt"`
}

// WorkspaceAuthority says who may write a workspace, and what is saved of it.
type WorkspaceAuthority struct {
	Schema      string     `json:"schema" enum:"paperclip.remote-workspace.v1"`
	Epoch       int64      `json:"epoch" minimum:"0" maximum:"9007199254740991" doc:"Raised by one with each new writer; it goes with each of the writer's calls. It never goes down."`
	SnapshotID  *uuid.UUID `json:"snapshotId" format:"uuid" nullable:"true" doc:"The saved state."`
	Source      Object     `json:"source" doc:"Where the first files came from: its kind, and what the kind needs."`
	Location    *Object    `json:"location" nullable:"true" doc:"Where the writer's files are, as it told."`
	WriterRunID *uuid.UUID `json:"writerRunId" format:"uuid" nullable:"true" doc:"The run that may write. Null: nobody."`
	Dirty       bool       `json:"dirty" doc:"Whether the writer's files may differ from what is saved."`
}

// authoritySchema names the form of the authority document.
const authoritySchema = "paperclip.remote-workspace.v1"

func workspaceOf(w authority.Workspace) ExecutionWorkspace {
	return ExecutionWorkspace{
		ID: w.ID, CompanyID: w.CompanyID, ProjectID: w.ProjectID, ProjectWorkspaceID: w.ProjectWorkspaceID,
		SourceIssueID: w.SourceIssueID, DerivedFromExecutionWorkspaceID: w.DerivedFromExecutionWorkspaceID,
		Name: w.Name, Mode: WorkspaceMode(w.Mode), StrategyType: WorkspaceStrategy(w.StrategyType),
		ProviderType: WorkspaceProvider(w.ProviderType), Cwd: w.Cwd, Status: WorkspaceStatus(w.Status),
		LifecycleGeneration: w.LifecycleGeneration,
		Authority: WorkspaceAuthority{
			Schema: authoritySchema, Epoch: w.Authority.Epoch, SnapshotID: w.Authority.SnapshotID,
			Source: Object(w.Authority.Source), Location: objectOf(w.Authority.Location),
			WriterRunID: w.Authority.WriterRunID, Dirty: w.Authority.Dirty,
		},
		CreatedAt: Time(w.CreatedAt), UpdatedAt: Time(w.UpdatedAt),
	}
}

// WorkspaceCreate makes a workspace, or imports one.
type WorkspaceCreate struct {
	Name               string            `json:"name" minLength:"1" maxLength:"200"`
	ProjectID          *uuid.UUID        `json:"projectId,omitempty" format:"uuid"`
	ProjectWorkspaceID *uuid.UUID        `json:"projectWorkspaceId,omitempty" format:"uuid"`
	SourceIssueID      *uuid.UUID        `json:"sourceIssueId,omitempty" format:"uuid"`
	Mode               WorkspaceMode     `json:"mode,omitempty" default:"isolated_workspace"`
	StrategyType       WorkspaceStrategy `json:"strategyType,omitempty" default:"task_directory"`
	ProviderType       WorkspaceProvider `json:"providerType,omitempty" default:"cloud_sandbox"`
	Cwd                *string           `json:"cwd,omitempty" maxLength:"4096"`
	Status             WorkspaceStatus   `json:"status,omitempty" default:"active" doc:"A closed one only with an imported authority."`
	Source             *Object           `json:"source,omitempty" doc:"Where the first files come from. {\"kind\": \"empty\"} if absent."`
	From               *uuid.UUID        `json:"derivedFromExecutionWorkspaceId,omitempty" format:"uuid" doc:"Begin as a branch of this workspace: with its saved state, its project and source. Who may not read all of its tasks may not branch from it, nor read the branch."`
	FromSnapshotID     *uuid.UUID        `json:"fromSnapshotId,omitempty" format:"uuid" doc:"Of that workspace's snapshots this one instead of the current."`
	Authority          *AuthorityImport  `json:"authority,omitempty" doc:"For operators: the authority of a workspace that moves here from another system."`
}

// AuthorityImport is the authority that a workspace had elsewhere.
type AuthorityImport struct {
	Schema      string     `json:"schema,omitempty" enum:"paperclip.remote-workspace.v1"`
	Epoch       int64      `json:"epoch" minimum:"0" maximum:"9007199254740991"`
	SnapshotID  *uuid.UUID `json:"snapshotId,omitempty" format:"uuid" nullable:"true" doc:"Recorded as unavailable until an operator uploads its content. Null: nothing was saved."`
	Source      *Object    `json:"source,omitempty" doc:"{\"kind\": \"empty\"} if absent."`
	Location    *Object    `json:"location,omitempty" nullable:"true"`
	WriterRunID *uuid.UUID `json:"writerRunId,omitempty" format:"uuid" nullable:"true" doc:"A run of the company, which becomes the writer."`
	Dirty       bool       `json:"dirty,omitempty"`
}

func (c WorkspaceCreate) input() authority.WorkspaceInput {
	in := authority.WorkspaceInput{
		Name: c.Name, ProjectID: c.ProjectID, ProjectWorkspaceID: c.ProjectWorkspaceID, SourceIssueID: c.SourceIssueID,
		Mode: string(c.Mode), StrategyType: string(c.StrategyType), ProviderType: string(c.ProviderType),
		Cwd: c.Cwd, Status: string(c.Status), Source: c.Source.raw(),
	}
	if c.From != nil {
		in.From = &authority.Branching{WorkspaceID: *c.From, SnapshotID: c.FromSnapshotID}
	}
	if a := c.Authority; a != nil {
		in.Authority = &authority.AuthorityImport{
			Epoch: a.Epoch, SnapshotID: a.SnapshotID, Source: a.Source.raw(), Location: a.Location.raw(),
			WriterRunID: a.WriterRunID, Dirty: a.Dirty,
		}
	}
	return in
}

// WorkspaceUpdate changes what it names.
type WorkspaceUpdate struct {
	Name   *string          `json:"name,omitempty" minLength:"1" maxLength:"200"`
	Status *WorkspaceStatus `json:"status,omitempty" doc:"Refused with 409 workspace_in_use while there is a writer, if it closes the workspace."`
}

// WorkspacePath names an execution workspace.
type WorkspacePath struct {
	WorkspaceID uuid.UUID `path:"workspaceId" format:"uuid"`
}

// WorkspaceFilter narrows a list of workspaces.
type WorkspaceFilter struct {
	Status    WorkspaceStatus `query:"status"`
	ProjectID QueryID         `query:"projectId"`
}

func (s *server) workspaces() {
	const ofCompany, one = "/api/companies/{companyId}/execution-workspaces", "/api/execution-workspaces/{workspaceId}"
	register(s, endpoint{
		id: "listExecutionWorkspaces", method: http.MethodGet, path: ofCompany, tag: "workspaces",
		summary: "List the workspaces of a company that the caller may read",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		WorkspaceFilter
		PageQuery
	},
	) (*Answer[List[ExecutionWorkspace]], error) {
		filter := authority.WorkspaceFilter{Status: text(in.Status), ProjectID: in.ProjectID.pointer()}
		list, err := s.rules.ListWorkspaces(ctx, by, in.CompanyID, filter, in.page())
		return listOf(list, err, workspaceOf)
	})
	register(s, endpoint{
		id: "createExecutionWorkspace", method: http.MethodPost, path: ofCompany, tag: "workspaces",
		status: http.StatusCreated, summary: "Create a workspace, branch one off another, or import one with its authority",
		doc: "409 snapshot_unavailable when the content that a branch would begin with is not here.", refuses: []int{http.StatusConflict},
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body WorkspaceCreate
	},
	) (*Answer[ExecutionWorkspace], error) {
		workspace, err := s.rules.CreateWorkspace(ctx, by, in.CompanyID, in.Body.input(), in.once(ctx))
		return answer(workspace, err, workspaceOf)
	})
	register(s, endpoint{
		id: "getExecutionWorkspace", method: http.MethodGet, path: one, tag: "workspaces",
		summary: "Read a workspace", doc: lateRecoveryDoc, refuses: []int{http.StatusConflict},
	}, func(ctx context.Context, by authority.Principal, in *struct{ WorkspacePath }) (*Answer[ExecutionWorkspace], error) {
		workspace, err := s.rules.GetWorkspace(ctx, by, in.WorkspaceID)
		return answer(workspace, err, workspaceOf)
	})
	register(s, endpoint{
		id: "updateExecutionWorkspace", method: http.MethodPatch, path: one, tag: "workspaces",
		summary: "Rename, close or reopen a workspace",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body WorkspaceUpdate
	},
	) (*Answer[ExecutionWorkspace], error) {
		patch := authority.WorkspacePatch{Name: in.Body.Name, Status: textOf(in.Body.Status)}
		workspace, err := s.rules.UpdateWorkspace(ctx, by, in.WorkspaceID, patch)
		return answer(workspace, err, workspaceOf)
	})
}
