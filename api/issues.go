package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Issue is a task.
type Issue struct {
	ID                           uuid.UUID   `json:"id" format:"uuid"`
	CompanyID                    uuid.UUID   `json:"companyId" format:"uuid"`
	IssueNumber                  int64       `json:"issueNumber" minimum:"1" maximum:"9007199254740991"`
	Identifier                   string      `json:"identifier" maxLength:"40" doc:"The company's prefix and the number, as in ACME-12."`
	Title                        string      `json:"title" maxLength:"500"`
	Status                       IssueStatus `json:"status"`
	ParentID                     *uuid.UUID  `json:"parentId" format:"uuid" nullable:"true"`
	ProjectID                    *uuid.UUID  `json:"projectId" format:"uuid" nullable:"true"`
	ProjectWorkspaceID           *uuid.UUID  `json:"projectWorkspaceId" format:"uuid" nullable:"true" doc:"The source of the task's files."`
	AssigneeAgentID              *uuid.UUID  `json:"assigneeAgentId" format:"uuid" nullable:"true"`
	AssigneeUserID               *uuid.UUID  `json:"assigneeUserId" format:"uuid" nullable:"true"`
	ResponsibleUserID            *uuid.UUID  `json:"responsibleUserId" format:"uuid" nullable:"true"`
	CreatedByUserID              *uuid.UUID  `json:"createdByUserId" format:"uuid" nullable:"true"`
	CreatedByAgentID             *uuid.UUID  `json:"createdByAgentId" format:"uuid" nullable:"true"`
	ExecutionWorkspaceID         *uuid.UUID  `json:"executionWorkspaceId" format:"uuid" nullable:"true" doc:"The workspace that the task is bound to."`
	ExecutionWorkspacePreference *string     `json:"executionWorkspacePreference" nullable:"true" maxLength:"100"`
	ExecutionWorkspaceSettings   *Object     `json:"executionWorkspaceSettings" nullable:"true" doc:"Berth reads and writes mode."`
	WorkspaceBindingRevision     int64       `json:"workspaceBindingRevision" minimum:"0" maximum:"9007199254740991" doc:"How often the binding changed."`
	WorkspaceSelection           *Object     `json:"workspaceSelection" nullable:"true" doc:"The choice that was applied last."`
	WorkspacePendingSelection    *Object     `json:"workspacePendingSelection" nullable:"true" doc:"The choice that waits for the next run."`
	ExecutionRunID               *uuid.UUID  `json:"executionRunId" format:"uuid" nullable:"true"`
	CheckoutRunID                *uuid.UUID  `json:"checkoutRunId" format:"uuid" nullable:"true"`
	Visibility                   Visibility  `json:"visibility"`
	PrivacyRootIssueID           *uuid.UUID  `json:"privacyRootIssueId" format:"uuid" nullable:"true" doc:"The private task whose readers read this one."`
	PrivacyParentIssueID         *uuid.UUID  `json:"privacyParentIssueId" format:"uuid" nullable:"true"`
	CreatedAt                    Time        `json:"createdAt"`
	UpdatedAt                    Time        `json:"updatedAt"`
}

func issueOf(i authority.Issue) Issue {
	return Issue{
		ID: i.ID, CompanyID: i.CompanyID, IssueNumber: i.IssueNumber, Identifier: i.Identifier, Title: i.Title,
		Status: IssueStatus(i.Status), ParentID: i.ParentID, ProjectID: i.ProjectID, ProjectWorkspaceID: i.ProjectWorkspaceID,
		AssigneeAgentID: i.AssigneeAgentID, AssigneeUserID: i.AssigneeUserID, ResponsibleUserID: i.ResponsibleUserID,
		CreatedByUserID: i.CreatedByUserID, CreatedByAgentID: i.CreatedByAgentID,
		ExecutionWorkspaceID: i.ExecutionWorkspaceID, ExecutionWorkspacePreference: i.ExecutionWorkspacePreference,
		ExecutionWorkspaceSettings: objectOf(i.ExecutionWorkspaceSettings),
		WorkspaceBindingRevision:   i.WorkspaceBindingRevision, WorkspaceSelection: objectOf(i.WorkspaceSelection),
		WorkspacePendingSelection: objectOf(i.WorkspacePendingSelection),
		ExecutionRunID:            i.ExecutionRunID, CheckoutRunID: i.CheckoutRunID, Visibility: Visibility(i.Visibility),
		PrivacyRootIssueID: i.PrivacyRootIssueID, PrivacyParentIssueID: i.PrivacyParentIssueID,
		CreatedAt: Time(i.CreatedAt), UpdatedAt: Time(i.UpdatedAt),
	}
}

// IssueCreate makes a task.
type IssueCreate struct {
	Title                                string      `json:"title" minLength:"1" maxLength:"500"`
	Status                               IssueStatus `json:"status,omitempty" default:"todo"`
	ParentID                             *uuid.UUID  `json:"parentId,omitempty" format:"uuid" doc:"The task that it belongs to, and takes its project, source, workspace and privacy from."`
	ProjectID                            *uuid.UUID  `json:"projectId,omitempty" format:"uuid"`
	ProjectWorkspaceID                   *uuid.UUID  `json:"projectWorkspaceId,omitempty" format:"uuid"`
	AssigneeAgentID                      *uuid.UUID  `json:"assigneeAgentId,omitempty" format:"uuid"`
	AssigneeUserID                       *uuid.UUID  `json:"assigneeUserId,omitempty" format:"uuid"`
	ResponsibleUserID                    *uuid.UUID  `json:"responsibleUserId,omitempty" format:"uuid"`
	ExecutionWorkspaceID                 *uuid.UUID  `json:"executionWorkspaceId,omitempty" format:"uuid" doc:"This and the next two count only where the instance isolates workspaces."`
	ExecutionWorkspacePreference         *string     `json:"executionWorkspacePreference,omitempty" maxLength:"100"`
	ExecutionWorkspaceSettings           *Object     `json:"executionWorkspaceSettings,omitempty"`
	ExecutionRunID                       *uuid.UUID  `json:"executionRunId,omitempty" format:"uuid"`
	CheckoutRunID                        *uuid.UUID  `json:"checkoutRunId,omitempty" format:"uuid"`
	InheritWorkspace                     *bool       `json:"inheritWorkspace,omitempty" doc:"false: take no workspace from the parent."`
	InheritExecutionWorkspaceFromIssueID *uuid.UUID  `json:"inheritExecutionWorkspaceFromIssueId,omitempty" format:"uuid" doc:"Take the workspace from this task instead of the parent."`
	Visibility                           *Visibility `json:"visibility,omitempty" doc:"For operators, as the next two."`
	PrivacyRootIssueID                   *uuid.UUID  `json:"privacyRootIssueId,omitempty" format:"uuid"`
	PrivacyParentIssueID                 *uuid.UUID  `json:"privacyParentIssueId,omitempty" format:"uuid"`
}

func (c IssueCreate) input() authority.IssueInput {
	return authority.IssueInput{
		Title: c.Title, Status: string(c.Status), ParentID: c.ParentID, ProjectID: c.ProjectID,
		ProjectWorkspaceID: c.ProjectWorkspaceID, AssigneeAgentID: c.AssigneeAgentID, AssigneeUserID: c.AssigneeUserID,
		ResponsibleUserID: c.ResponsibleUserID, ExecutionWorkspaceID: c.ExecutionWorkspaceID,
		ExecutionWorkspacePreference: c.ExecutionWorkspacePreference,
		ExecutionWorkspaceSettings:   c.ExecutionWorkspaceSettings.raw(),
		ExecutionRunID:               c.ExecutionRunID, CheckoutRunID: c.CheckoutRunID, InheritWorkspace: c.InheritWorkspace,
		InheritExecutionWorkspaceFromIssueID: c.InheritExecutionWorkspaceFromIssueID,
		Visibility:                           textOf(c.Visibility), PrivacyRootIssueID: c.PrivacyRootIssueID,
		PrivacyParentIssueID: c.PrivacyParentIssueID,
	}
}

// IssueUpdate changes what it names. null clears what can be empty.
type IssueUpdate struct {
	Title                        *string           `json:"title,omitempty" minLength:"1" maxLength:"500"`
	Status                       *IssueStatus      `json:"status,omitempty"`
	ParentID                     Change[uuid.UUID] `json:"parentId,omitzero" format:"uuid"`
	ProjectID                    Change[uuid.UUID] `json:"projectId,omitzero" format:"uuid"`
	ProjectWorkspaceID           Change[uuid.UUID] `json:"projectWorkspaceId,omitzero" format:"uuid"`
	AssigneeAgentID              Change[uuid.UUID] `json:"assigneeAgentId,omitzero" format:"uuid"`
	AssigneeUserID               Change[uuid.UUID] `json:"assigneeUserId,omitzero" format:"uuid"`
	ResponsibleUserID            Change[uuid.UUID] `json:"responsibleUserId,omitzero" format:"uuid"`
	ExecutionWorkspaceID         Change[uuid.UUID] `json:"executionWorkspaceId,omitzero" format:"uuid" doc:"A change of this or the next two drops a pending choice, and is 409 task_run_active while a run of the task is running."`
	ExecutionWorkspacePreference Change[string]    `json:"executionWorkspacePreference,omitzero" maxLength:"100"`
	ExecutionWorkspaceSettings   Change[Object]    `json:"executionWorkspaceSettings,omitzero"`
	ExecutionRunID               Change[uuid.UUID] `json:"executionRunId,omitzero" format:"uuid"`
	CheckoutRunID                Change[uuid.UUID] `json:"checkoutRunId,omitzero" format:"uuid"`
	Visibility                   *Visibility       `json:"visibility,omitempty" doc:"For operators, as the next two."`
	PrivacyRootIssueID           Change[uuid.UUID] `json:"privacyRootIssueId,omitzero" format:"uuid"`
	PrivacyParentIssueID         Change[uuid.UUID] `json:"privacyParentIssueId,omitzero" format:"uuid"`
}

func (u IssueUpdate) patch() authority.IssuePatch {
	return authority.IssuePatch{
		Title: u.Title, Status: textOf(u.Status), ParentID: change(u.ParentID, same), ProjectID: change(u.ProjectID, same),
		ProjectWorkspaceID: change(u.ProjectWorkspaceID, same), AssigneeAgentID: change(u.AssigneeAgentID, same),
		AssigneeUserID: change(u.AssigneeUserID, same), ResponsibleUserID: change(u.ResponsibleUserID, same),
		ExecutionWorkspaceID:         change(u.ExecutionWorkspaceID, same),
		ExecutionWorkspacePreference: change(u.ExecutionWorkspacePreference, same),
		ExecutionWorkspaceSettings:   change(u.ExecutionWorkspaceSettings, rawOf),
		ExecutionRunID:               change(u.ExecutionRunID, same), CheckoutRunID: change(u.CheckoutRunID, same),
		Visibility: textOf(u.Visibility), PrivacyRootIssueID: change(u.PrivacyRootIssueID, same),
		PrivacyParentIssueID: change(u.PrivacyParentIssueID, same),
	}
}

// IssuePath names a task.
type IssuePath struct {
	IssueID uuid.UUID `path:"issueId" format:"uuid"`
}

// IssueFilter narrows a list of tasks.
type IssueFilter struct {
	Status               IssueStatus `query:"status"`
	ParentID             QueryID     `query:"parentId"`
	ProjectID            QueryID     `query:"projectId"`
	AssigneeAgentID      QueryID     `query:"assigneeAgentId"`
	ExecutionWorkspaceID QueryID     `query:"executionWorkspaceId"`
}

func (f IssueFilter) filter() authority.IssueFilter {
	return authority.IssueFilter{
		Status: text(f.Status), ParentID: f.ParentID.pointer(), ProjectID: f.ProjectID.pointer(),
		AssigneeAgentID: f.AssigneeAgentID.pointer(), ExecutionWorkspaceID: f.ExecutionWorkspaceID.pointer(),
	}
}

func (s *server) issues() {
	register(s, endpoint{
		id: "listIssues", method: http.MethodGet, path: "/api/companies/{companyId}/issues", tag: "issues",
		summary: "List the tasks of a company that the caller may read", doc: "The oldest first.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IssueFilter
		PageQuery
	},
	) (*Answer[List[Issue]], error) {
		list, err := s.rules.ListIssues(ctx, by, in.CompanyID, in.filter(), in.page())
		return listOf(list, err, issueOf)
	})
	register(s, endpoint{
		id: "createIssue", method: http.MethodPost, path: "/api/companies/{companyId}/issues", tag: "issues",
		status: http.StatusCreated, summary: "Create a task",
		doc: "A task with a parent takes over its project, source, workspace and privacy, unless the body says otherwise. A run creates children of tasks that it can read.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body IssueCreate
	},
	) (*Answer[Issue], error) {
		issue, err := s.rules.CreateIssue(ctx, by, in.CompanyID, in.Body.input(), in.once(ctx))
		return answer(issue, err, issueOf)
	})
	register(s, endpoint{
		id: "getIssue", method: http.MethodGet, path: "/api/issues/{issueId}", tag: "issues",
		summary: "Read a task",
	}, func(ctx context.Context, by authority.Principal, in *struct{ IssuePath }) (*Answer[Issue], error) {
		issue, err := s.rules.GetIssue(ctx, by, in.IssueID)
		return answer(issue, err, issueOf)
	})
	register(s, endpoint{
		id: "updateIssue", method: http.MethodPatch, path: "/api/issues/{issueId}", tag: "issues",
		summary: "Change a task",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		Body IssueUpdate
	},
	) (*Answer[Issue], error) {
		issue, err := s.rules.UpdateIssue(ctx, by, in.IssueID, in.Body.patch())
		return answer(issue, err, issueOf)
	})
	s.accessGrants()
}
