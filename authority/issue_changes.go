package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// IssuePatch changes a task. What is nil, or not set, stays.
//
// ProjectWorkspaceID and the ExecutionWorkspace fields are the task's binding: changing it drops a
// pending selection, counts WorkspaceBindingRevision up, and waits until no run of the task is
// running. Privacy is for operators to change.
type IssuePatch struct {
	Title                        *string
	Status                       *string
	ParentID                     Optional[uuid.UUID]
	ProjectID                    Optional[uuid.UUID]
	ProjectWorkspaceID           Optional[uuid.UUID]
	AssigneeAgentID              Optional[uuid.UUID]
	AssigneeUserID               Optional[uuid.UUID]
	ResponsibleUserID            Optional[uuid.UUID]
	ExecutionWorkspaceID         Optional[uuid.UUID]
	ExecutionWorkspacePreference Optional[string]
	ExecutionWorkspaceSettings   Optional[json.RawMessage]
	ExecutionRunID               Optional[uuid.UUID]
	CheckoutRunID                Optional[uuid.UUID]
	Visibility                   *string
	PrivacyRootIssueID           Optional[uuid.UUID]
	PrivacyParentIssueID         Optional[uuid.UUID]
}

func (p IssuePatch) validate() error {
	refused := validation{}
	if p.Title != nil {
		refused.text("body.title", *p.Title)
	}
	if p.Status != nil {
		refused.text("body.status", *p.Status)
		refused.oneOf("body.status", *p.Status, issueStatuses)
	}
	if p.Visibility != nil {
		refused.text("body.visibility", *p.Visibility)
		refused.oneOf("body.visibility", *p.Visibility, visibilities)
	}
	if p.ExecutionWorkspaceSettings.Value != nil {
		refused.object("body.executionWorkspaceSettings", *p.ExecutionWorkspaceSettings.Value)
	}
	return refused.err()
}

// UpdateIssue changes a task, for operators and the company's writing members. A run changes no
// task: it writes by its tenure, its selection, and the children that it creates.
func (s *Service) UpdateIssue(ctx context.Context, by Principal, id uuid.UUID, patch IssuePatch) (Issue, error) {
	if err := patch.validate(); err != nil {
		return Issue{}, err
	}
	var changed Issue
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		before, err := s.issueForChange(ctx, tx, by, id)
		if err != nil {
			return err
		}
		if err := s.requireCompanyWrite(ctx, tx, by, before.CompanyID); err != nil {
			return err
		}
		change := issueChange{service: s, tx: tx, by: by, patch: patch, before: before, after: before}
		row, err := change.write(ctx)
		changed = issueOf(row)
		return err
	})
	return changed, err
}

// issueForChange locks a task and reads what it is once the lock is there.
func (s *Service) issueForChange(ctx context.Context, tx pgx.Tx, by Principal, id uuid.UUID) (db.Issue, error) {
	locked, err := s.queries.LockIssueForChange(ctx, tx, id)
	if _, err := found(locked, err, ErrIssueNotFound, "lock an issue"); err != nil {
		return db.Issue{}, err
	}
	return s.readableIssue(ctx, tx, by, id)
}

// issueChange is a task whose row is locked, as it was and as it will be.
type issueChange struct {
	service *Service
	tx      pgx.Tx
	by      Principal
	patch   IssuePatch
	before  db.Issue
	after   db.Issue
}

func (c *issueChange) write(ctx context.Context) (db.Issue, error) {
	p := c.patch
	if p.Title != nil {
		c.after.Title = *p.Title
	}
	if p.Status != nil {
		c.after.Status = *p.Status
	}
	c.after.ResponsibleUserID = p.ResponsibleUserID.over(c.before.ResponsibleUserID)
	if err := c.service.requireRuns(ctx, c.tx, c.before.CompanyID, p.ExecutionRunID.Value, p.CheckoutRunID.Value); err != nil {
		return db.Issue{}, err
	}
	c.after.ExecutionRunID = p.ExecutionRunID.over(c.before.ExecutionRunID)
	c.after.CheckoutRunID = p.CheckoutRunID.over(c.before.CheckoutRunID)
	for _, step := range []func(context.Context) error{
		c.changeAssignee, c.changeParent, c.changeProject, c.changePrivacy, c.changeBinding,
	} {
		if err := step(ctx); err != nil {
			return db.Issue{}, err
		}
	}
	return c.service.writeIssue(ctx, c.tx, c.before, c.after)
}

// writeIssue stores after over a row that was locked as before.
func (s *Service) writeIssue(ctx context.Context, tx pgx.Tx, before, after db.Issue) (db.Issue, error) {
	row, err := s.queries.WriteIssue(ctx, tx, db.WriteIssueParams{
		ID: before.ID, CompanyID: before.CompanyID, FromRevision: before.WorkspaceBindingRevision,
		Title: after.Title, Status: after.Status, ParentID: after.ParentID, ProjectID: after.ProjectID,
		ProjectWorkspaceID: after.ProjectWorkspaceID, AssigneeAgentID: after.AssigneeAgentID,
		AssigneeUserID: after.AssigneeUserID, ResponsibleUserID: after.ResponsibleUserID,
		ExecutionWorkspaceID: after.ExecutionWorkspaceID, ExecutionWorkspacePreference: after.ExecutionWorkspacePreference,
		ExecutionWorkspaceSettings: after.ExecutionWorkspaceSettings, WorkspaceBindingRevision: after.WorkspaceBindingRevision,
		WorkspaceSelection: after.WorkspaceSelection, WorkspacePendingSelection: after.WorkspacePendingSelection,
		ExecutionRunID: after.ExecutionRunID, CheckoutRunID: after.CheckoutRunID, Visibility: after.Visibility,
		PrivacyRootIssueID: after.PrivacyRootIssueID, PrivacyParentIssueID: after.PrivacyParentIssueID,
	})
	if err != nil {
		return row, fmt.Errorf("write an issue: %w", err)
	}
	return row, nil
}

// changeAssignee gives the task to an agent, to a user, or to nobody. Naming one unassigns the other.
func (c *issueChange) changeAssignee(ctx context.Context) error {
	agent, user := c.patch.AssigneeAgentID, c.patch.AssigneeUserID
	if agent.Value != nil && user.Value != nil {
		return ErrValidation.At("body.assigneeUserId", "a task has one assignee: an agent or a user")
	}
	c.after.AssigneeAgentID = agent.over(c.before.AssigneeAgentID)
	c.after.AssigneeUserID = user.over(c.before.AssigneeUserID)
	switch {
	case agent.Value != nil:
		c.after.AssigneeUserID = nil
	case user.Value != nil:
		c.after.AssigneeAgentID = nil
	}
	if agent.Value == nil {
		return nil
	}
	return c.service.requireAgent(ctx, c.tx, c.before.CompanyID, *agent.Value)
}

// changeParent hangs the task under another one, which must not be the task itself or one below it.
// Workspace and privacy were inherited when the task was created, and do not follow.
func (c *issueChange) changeParent(ctx context.Context) error {
	c.after.ParentID = c.patch.ParentID.over(c.before.ParentID)
	parent := c.patch.ParentID.Value
	if parent == nil {
		return nil
	}
	if _, err := c.service.queries.LockIssueTree(ctx, c.tx, c.before.CompanyID); err != nil {
		return fmt.Errorf("lock the tree of issues: %w", err)
	}
	if _, err := c.service.issueIn(ctx, c.tx, c.by, c.before.CompanyID, *parent); err != nil {
		return err
	}
	circle, err := c.service.queries.IsIssueBelow(ctx, c.tx, db.IsIssueBelowParams{
		CompanyID: c.before.CompanyID, IssueID: *parent, RootID: c.before.ID,
	})
	if err != nil {
		return fmt.Errorf("look for a circle of issues: %w", err)
	}
	if circle {
		return ErrValidation.At("body.parentId", "is the task itself or a task below it")
	}
	return nil
}

// changeProject moves the task to another project. Its source goes with the binding.
func (c *issueChange) changeProject(ctx context.Context) error {
	c.after.ProjectID = c.patch.ProjectID.over(c.before.ProjectID)
	if project := c.patch.ProjectID.Value; project != nil {
		_, err := c.service.projectIn(ctx, c.tx, c.by, c.before.CompanyID, *project)
		return err
	}
	return nil
}

// changeBinding changes what the task is bound to, or what its next workspace is made from.
func (c *issueChange) changeBinding(ctx context.Context) error {
	p := c.patch
	c.after.ExecutionWorkspacePreference = p.ExecutionWorkspacePreference.over(c.before.ExecutionWorkspacePreference)
	if p.ExecutionWorkspaceSettings.Set {
		c.after.ExecutionWorkspaceSettings = nil
		if p.ExecutionWorkspaceSettings.Value != nil {
			c.after.ExecutionWorkspaceSettings = *p.ExecutionWorkspaceSettings.Value
		}
	}
	if err := c.changeWorkspace(ctx); err != nil {
		return err
	}
	if err := c.changeSource(ctx); err != nil {
		return err
	}
	if sameBinding(c.before, c.after) {
		return nil
	}
	running, err := c.service.queries.IsTaskRunning(ctx, c.tx, db.IsTaskRunningParams{IssueID: c.before.ID})
	if err != nil {
		return fmt.Errorf("look for running runs: %w", err)
	}
	if running {
		return ErrTaskRunActive
	}
	c.after.WorkspaceBindingRevision++
	c.after.WorkspaceSelection, c.after.WorkspacePendingSelection = nil, nil
	return nil
}

// changeWorkspace binds the task to a workspace that the caller can read, or unbinds it.
func (c *issueChange) changeWorkspace(ctx context.Context) error {
	to := c.patch.ExecutionWorkspaceID
	c.after.ExecutionWorkspaceID = to.over(c.before.ExecutionWorkspaceID)
	switch {
	case sameID(c.after.ExecutionWorkspaceID, c.before.ExecutionWorkspaceID):
		return nil
	case to.Value == nil:
		if p := c.after.ExecutionWorkspacePreference; p != nil && *p == preferReuse {
			c.after.ExecutionWorkspacePreference = nil // there is nothing left to reuse
		}
		return nil
	}
	row, err := c.service.bindableWorkspace(ctx, c.tx, c.by, bindQuestion{
		company: c.before.CompanyID, workspace: *to.Value, issue: c.before.ID, private: c.after.Visibility == visibilityPrivate,
	})
	if err != nil {
		return err
	}
	binding := bindingTo(row, c.after.ExecutionWorkspaceSettings)
	c.after.ProjectWorkspaceID, c.after.ExecutionWorkspaceSettings = binding.source, binding.settings
	if !c.patch.ExecutionWorkspacePreference.Set {
		c.after.ExecutionWorkspacePreference = binding.preference
	}
	return nil
}

// changeSource changes the source of a task without a workspace; a workspace decides it otherwise.
// A task that moved to another project leaves the source of the old one behind for the default of
// the new one.
func (c *issueChange) changeSource(ctx context.Context) (err error) {
	to := c.patch.ProjectWorkspaceID
	switch {
	case c.after.ExecutionWorkspaceID != nil:
		if to.Set && !sameID(to.Value, c.after.ProjectWorkspaceID) {
			return ErrValidation.At("body.projectWorkspaceId", "the task's workspace decides it: choose another workspace, or none")
		}
	case to.Value != nil:
		c.after.ProjectWorkspaceID = to.Value
		_, err = c.service.sourceFor(ctx, c.tx, c.by, sourceQuestion{
			company: c.before.CompanyID, project: c.after.ProjectID, source: *to.Value,
		})
	case to.Set:
		c.after.ProjectWorkspaceID = nil
	case !sameID(c.after.ProjectID, c.before.ProjectID):
		c.after.ProjectWorkspaceID = nil
		if c.after.ProjectID != nil {
			c.after.ProjectWorkspaceID, err = c.service.defaultSource(ctx, c.tx, c.before.CompanyID, *c.after.ProjectID)
		}
	}
	return err
}

// sameBinding reports whether two states of a task are bound alike.
func sameBinding(a, b db.Issue) bool {
	samePreference := a.ExecutionWorkspacePreference == b.ExecutionWorkspacePreference ||
		(a.ExecutionWorkspacePreference != nil && b.ExecutionWorkspacePreference != nil &&
			*a.ExecutionWorkspacePreference == *b.ExecutionWorkspacePreference)
	return samePreference && sameID(a.ExecutionWorkspaceID, b.ExecutionWorkspaceID) &&
		sameID(a.ProjectWorkspaceID, b.ProjectWorkspaceID) &&
		saySame(a.ExecutionWorkspaceSettings, b.ExecutionWorkspaceSettings)
}

// saySame reports whether two documents, or none, say the same. The database writes them with other
// blanks than their callers, and a caller that sends back what it read changes nothing.
func saySame(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var left, right any
	return json.Unmarshal(a, &left) == nil && json.Unmarshal(b, &right) == nil && reflect.DeepEqual(left, right)
}
