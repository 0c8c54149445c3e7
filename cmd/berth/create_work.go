package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type createIssueCommand struct {
	outputFlag
	companyFlags
	Title       string `arg:"" help:"Its title."`
	Parent      string `placeholder:"ISSUE" help:"The task that it belongs to, and takes its project, source, workspace and privacy from."`
	InheritFrom string `placeholder:"ISSUE" help:"Take the workspace from this task instead of the parent."`
	Inherit     bool   `default:"true" negatable:"" help:"Take the parent's workspace; --no-inherit takes none."`
	Project     string `placeholder:"PROJECT" help:"Its project, by name or id."`
	Source      string `placeholder:"ID" help:"Its configured source, by id."`
	Workspace   string `placeholder:"WORKSPACE" help:"Its workspace. It counts where the instance isolates workspaces."`
	Assignee    string `placeholder:"AGENT" help:"The agent that works on it, by name or id."`
	Status      string `placeholder:"STATUS" help:"Where it stands: backlog, todo, in_progress, in_review, blocked, done or cancelled."`
	Private     bool   `help:"Only those that it names may read it. For operators."`
}

// Run makes a task in its parent's company, else in the command's.
func (c createIssueCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	body := client.IssueCreate{Title: c.Title, Status: filter[client.IssueStatus](c.Status)}
	if c.Private {
		private := client.VisibilityPrivate
		body.Visibility = &private
	}
	if !c.Inherit {
		body.InheritWorkspace = &c.Inherit
	}
	company, err := c.companyOf(ctx, s, &body)
	if err != nil {
		return err
	}
	var errFrom, errProject, errSource, errWorkspace, errAssignee error
	body.InheritExecutionWorkspaceFromIssueID, errFrom = filterID(ctx, c.InheritFrom, s.issueID)
	body.ProjectID, errProject = filterID(ctx, c.Project, s.projectID)
	body.ProjectWorkspaceID, errSource = filterID(ctx, c.Source, parseID("--source"))
	body.ExecutionWorkspaceID, errWorkspace = filterID(ctx, c.Workspace, s.workspaceID)
	body.AssigneeAgentID, errAssignee = filterID(ctx, c.Assignee, s.agentID)
	if err := errors.Join(errFrom, errProject, errSource, errWorkspace, errAssignee); err != nil {
		return err
	}
	issue, err := read[client.Issue](s.CreateIssue(ctx, company, nil, body))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, issue, issue.value.ID)
}

// companyOf decides the company, and sets the parent.
func (c createIssueCommand) companyOf(ctx context.Context, s *session, body *client.IssueCreate) (uuid.UUID, error) {
	parent, err := filterID(ctx, c.Parent, s.issueID)
	if err != nil {
		return uuid.Nil, err
	}
	body.ParentID = parent
	if parent == nil || s.company != "" {
		return s.companyID(ctx)
	}
	above, err := read[client.Issue](s.GetIssue(ctx, *parent))
	if err != nil {
		return uuid.Nil, err
	}
	s.company = above.value.CompanyID.String()
	return above.value.CompanyID, nil
}

type createWorkspaceCommand struct {
	outputFlag
	connectionFlags
	Name  string `arg:"" optional:"" help:"Its name; the task's identifier unless given."`
	Issue string `required:"" placeholder:"ISSUE" help:"The task that is bound to it, by identifier or id."`
	From  string `placeholder:"WORKSPACE[@SNAPSHOT]" help:"Branch it off this workspace: with its saved state, or with a snapshot by name or id."`
	Mode  string `placeholder:"MODE" help:"How tasks use it: isolated_workspace, operator_branch, shared_workspace, …; isolated_workspace unless given."`
}

// Run makes a workspace and binds the task to it. A task that has one keeps it:
// its files would seem to be gone.
func (c createWorkspaceCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	id, err := s.issueID(ctx, c.Issue)
	if err != nil {
		return err
	}
	issue, err := read[client.Issue](s.GetIssue(ctx, id))
	if err != nil {
		return err
	}
	task := issue.value
	if task.ExecutionWorkspaceID != nil {
		return fmt.Errorf("task %s is bound to workspace %s already: berth show workspace %[2]s", task.Identifier, task.ExecutionWorkspaceID)
	}
	name := c.Name
	if name == "" {
		name = task.Identifier
	}
	body := client.WorkspaceCreate{
		Name: name, Mode: filter[client.WorkspaceMode](c.Mode), ProjectID: task.ProjectID,
		ProjectWorkspaceID: task.ProjectWorkspaceID, SourceIssueID: &task.ID,
	}
	if c.From != "" {
		s.company = task.CompanyID.String()
		body.ProjectID, body.ProjectWorkspaceID = nil, nil // the origin's
		if body.DerivedFromExecutionWorkspaceID, body.FromSnapshotID, err = s.origin(ctx, c.From); err != nil {
			return err
		}
	}
	workspace, err := read[client.ExecutionWorkspace](s.CreateExecutionWorkspace(ctx, task.CompanyID, nil, body))
	if err != nil {
		return err
	}
	bound := client.IssueUpdate{ExecutionWorkspaceID: &workspace.value.ID}
	if _, err := read[client.Issue](s.UpdateIssue(ctx, task.ID, bound)); err != nil {
		return fmt.Errorf("workspace %s was made, and binding task %s to it failed: %w", workspace.value.ID, task.Identifier, err)
	}
	return made(stdout, c.outputFlag, workspace, workspace.value.ID)
}
