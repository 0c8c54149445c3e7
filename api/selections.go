package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// TaskWorkspace is what a task is bound to, and what it will be.
type TaskWorkspace struct {
	IssueID          uuid.UUID                  `json:"issueId" format:"uuid"`
	BindingRevision  int64                      `json:"bindingRevision" minimum:"0" maximum:"9007199254740991" doc:"Give it as expectedBindingRevision with a choice."`
	Selection        OrNull[AppliedSelection]   `json:"selection" doc:"The choice that made the binding. Null when it came by another way."`
	PendingSelection OrNull[PendingSelection]   `json:"pendingSelection" doc:"The choice that waits for the next run."`
	Workspace        OrNull[ExecutionWorkspace] `json:"workspace" doc:"Null when the task has none, or one that the caller may not read."`
	Capabilities     []string                   `json:"capabilities" doc:"What the caller may choose: select_task_directory, select_existing, select_configured_source_shared, select_configured_source_managed_isolated. More may come."`
}

func taskWorkspaceOf(w authority.TaskWorkspace) TaskWorkspace {
	return TaskWorkspace{
		IssueID: w.IssueID, BindingRevision: w.BindingRevision, Selection: orNull(w.Selection, appliedSelectionOf),
		PendingSelection: orNull(w.PendingSelection, pendingSelectionOf), Workspace: orNull(w.Workspace, workspaceOf),
		Capabilities: append([]string{}, w.Capabilities...),
	}
}

// PendingSelection is a choice that waits.
type PendingSelection struct {
	RequestKey              string             `json:"requestKey" maxLength:"200"`
	ExpectedBindingRevision int64              `json:"expectedBindingRevision" minimum:"0" maximum:"9007199254740991"`
	Selection               WorkspaceSelection `json:"selection"`
	ChosenBy                string             `json:"chosenBy" maxLength:"200" doc:"run:<id> or token:<id>."`
}

func pendingSelectionOf(p authority.PendingSelection) PendingSelection {
	return PendingSelection{
		RequestKey: p.RequestKey, ExpectedBindingRevision: p.ExpectedBindingRevision,
		Selection: selectionOf(p.Selection), ChosenBy: p.ChosenBy.Actor,
	}
}

// AppliedSelection is a choice that was applied.
type AppliedSelection struct {
	PendingSelection
	BindingRevision int64     `json:"bindingRevision" minimum:"0" maximum:"9007199254740991" doc:"That the choice led to."`
	RunID           uuid.UUID `json:"runId" format:"uuid" doc:"That it was applied for."`
}

func appliedSelectionOf(a authority.AppliedSelection) AppliedSelection {
	return AppliedSelection{
		PendingSelection: pendingSelectionOf(a.PendingSelection), BindingRevision: a.BindingRevision, RunID: a.RunID,
	}
}

// WorkspaceSelection is a choice of the workspace that a task gets.
type WorkspaceSelection struct {
	Kind               SelectionKind `json:"kind"`
	WorkspaceID        *uuid.UUID    `json:"workspaceId,omitempty" format:"uuid" doc:"With existing: which one."`
	ProjectWorkspaceID *uuid.UUID    `json:"projectWorkspaceId,omitempty" format:"uuid" doc:"With configured_source: which source."`
	Mode               *SourceMode   `json:"mode,omitempty" doc:"With configured_source: whether its tasks share one workspace."`
}

func selectionOf(s authority.Selection) WorkspaceSelection {
	return WorkspaceSelection{
		Kind: SelectionKind(s.Kind), WorkspaceID: s.WorkspaceID, ProjectWorkspaceID: s.ProjectWorkspaceID,
		Mode: (*SourceMode)(text(s.Mode)),
	}
}

// SelectionRequest chooses.
type SelectionRequest struct {
	Selection               WorkspaceSelection `json:"selection"`
	ExpectedBindingRevision int64              `json:"expectedBindingRevision" minimum:"0" maximum:"9007199254740991"`
	RequestKey              string             `json:"requestKey" minLength:"1" maxLength:"200" doc:"Names this choice: the same key with the same choice answers the same again."`
}

func (r SelectionRequest) input() authority.SelectionInput {
	chosen := authority.Selection{
		Kind: string(r.Selection.Kind), WorkspaceID: r.Selection.WorkspaceID,
		ProjectWorkspaceID: r.Selection.ProjectWorkspaceID,
	}
	if r.Selection.Mode != nil {
		chosen.Mode = string(*r.Selection.Mode)
	}
	return authority.SelectionInput{
		Selection: chosen, ExpectedBindingRevision: r.ExpectedBindingRevision, RequestKey: r.RequestKey,
	}
}

// SelectionAnswer says what becomes of a choice.
type SelectionAnswer struct {
	Kind            string `json:"kind" enum:"scheduled,applied" doc:"scheduled: it waits. applied: it was this choice's turn already."`
	Applies         string `json:"applies" maxLength:"100" doc:"When: next_normal_admission, that is with the next run of the task."`
	BindingRevision int64  `json:"bindingRevision" minimum:"0" maximum:"9007199254740991"`
}

// ApplyRequest admits a run.
type ApplyRequest struct {
	RunID uuid.UUID `json:"runId" format:"uuid" doc:"The run that is about to start."`
}

// ApplyAnswer says whether a choice was applied.
type ApplyAnswer struct {
	Applied         bool  `json:"applied" doc:"false: nothing was pending."`
	BindingRevision int64 `json:"bindingRevision" minimum:"0" maximum:"9007199254740991"`
}

func (s *server) selections() {
	const path = "/api/issues/{issueId}/workspace"
	register(s, endpoint{
		id: "getTaskWorkspace", method: http.MethodGet, path: path, tag: "selections",
		summary: "Read which workspace a task has and will have",
	}, func(ctx context.Context, by authority.Principal, in *struct{ IssuePath }) (*Answer[TaskWorkspace], error) {
		workspace, err := s.rules.GetTaskWorkspace(ctx, by, in.IssueID)
		return answer(workspace, err, taskWorkspaceOf)
	})
	register(s, endpoint{
		id: "selectWorkspace", method: http.MethodPut, path: path, tag: "selections",
		summary: "Choose the workspace of a task's next run",
		doc:     "The binding does not change now: the choice waits until a run is admitted, and takes the place of one that waits already. 409 binding_changed: somebody else was faster, read again. 409 selection_key_reused: the key stands for another choice.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		Body SelectionRequest
	},
	) (*Answer[SelectionAnswer], error) {
		selected, err := s.rules.SelectWorkspace(ctx, by, in.IssueID, in.Body.input())
		return answer(selected, err, func(a authority.SelectionAnswer) SelectionAnswer {
			return SelectionAnswer{Kind: a.Kind, Applies: a.Applies, BindingRevision: a.BindingRevision}
		})
	})
	register(s, endpoint{
		id: "applySelection", method: http.MethodPost, path: path + "/apply", tag: "selections",
		summary: "Apply the choice that waits, for a run that is about to reserve",
		doc:     "409 pending_selection_stale: the choice no longer fits, choose again. 409 task_run_active: another run of the task is running, or this one holds a workspace.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		Body ApplyRequest
	},
	) (*Answer[ApplyAnswer], error) {
		applied, revision, err := s.rules.ApplySelection(ctx, by, in.IssueID, in.Body.RunID)
		return answer(applied, err, func(applied bool) ApplyAnswer {
			return ApplyAnswer{Applied: applied, BindingRevision: revision}
		})
	})
}
