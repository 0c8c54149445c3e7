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

// Issue is a task. Its workspace is ExecutionWorkspaceID; WorkspaceBindingRevision counts how often
// that, or what the next workspace will be made from, was changed since the task was created.
type Issue struct {
	ID                           uuid.UUID
	CompanyID                    uuid.UUID
	IssueNumber                  int64
	Identifier                   string // the company's prefix and the number: "PAP-12"
	Title                        string
	Status                       string
	ParentID                     *uuid.UUID
	ProjectID                    *uuid.UUID
	ProjectWorkspaceID           *uuid.UUID
	AssigneeAgentID              *uuid.UUID
	AssigneeUserID               *uuid.UUID
	ResponsibleUserID            *uuid.UUID
	CreatedByUserID              *uuid.UUID
	CreatedByAgentID             *uuid.UUID
	ExecutionWorkspaceID         *uuid.UUID
	ExecutionWorkspacePreference *string
	ExecutionWorkspaceSettings   json.RawMessage // an object or nil; Berth reads and writes its "mode"
	WorkspaceBindingRevision     int64
	WorkspaceSelection           json.RawMessage // an AppliedSelection or nil
	WorkspacePendingSelection    json.RawMessage // a PendingSelection or nil
	ExecutionRunID               *uuid.UUID
	CheckoutRunID                *uuid.UUID
	Visibility                   string
	PrivacyRootIssueID           *uuid.UUID
	PrivacyParentIssueID         *uuid.UUID
	CreatedAt                    time.Time
	UpdatedAt                    time.Time
}

func issueOf(row db.Issue) Issue { return Issue(row) }

// IssueInput is what a new task is made from. Empty strings and nil mean the default.
//
// A task's workspace is inherited from its parent, or from InheritExecutionWorkspaceFromIssueID,
// unless InheritWorkspace is false or one of the three ExecutionWorkspace fields is given; those
// count only where the instance isolates workspaces.
type IssueInput struct {
	Title                                string
	Status                               string // "" means todo
	ParentID                             *uuid.UUID
	ProjectID                            *uuid.UUID
	ProjectWorkspaceID                   *uuid.UUID
	AssigneeAgentID                      *uuid.UUID
	AssigneeUserID                       *uuid.UUID
	ResponsibleUserID                    *uuid.UUID
	ExecutionWorkspaceID                 *uuid.UUID
	ExecutionWorkspacePreference         *string
	ExecutionWorkspaceSettings           json.RawMessage
	ExecutionRunID                       *uuid.UUID
	CheckoutRunID                        *uuid.UUID
	InheritWorkspace                     *bool
	InheritExecutionWorkspaceFromIssueID *uuid.UUID
	Visibility                           *string    // operators only, like the next two
	PrivacyRootIssueID                   *uuid.UUID // whose readers read a private task: itself, or a private task above it
	PrivacyParentIssueID                 *uuid.UUID
}

// The statuses of a task. Any may follow any: Berth schedules nothing.
var issueStatuses = []string{"backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled"}

const (
	visibilityOpen    = "open"
	visibilityPrivate = "private"
)

var visibilities = []string{visibilityOpen, visibilityPrivate}

// CreateIssue makes a task, numbers it and gives it the workspace, source and privacy that it
// inherits. Operators and the company's members may create any task; a run only children of a task
// that it can read. What the input names and the caller may not read does not exist for it.
func (s *Service) CreateIssue(ctx context.Context, by Principal, company uuid.UUID, in IssueInput, once Once) (Issue, error) {
	if err := in.validate(); err != nil {
		return Issue{}, err
	}
	issue, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Issue, error) {
		draft := issueDraft{service: s, tx: tx, by: by, company: company, in: in}
		return draft.create(ctx)
	})
	return issue, err
}

func (in IssueInput) validate() error {
	refused := validation{}
	refused.text("body.title", in.Title)
	refused.oneOf("body.status", in.Status, issueStatuses)
	if in.Visibility != nil {
		refused.oneOf("body.visibility", *in.Visibility, visibilities)
	}
	if in.AssigneeAgentID != nil && in.AssigneeUserID != nil {
		refused.add("body.assigneeUserId", "a task has one assignee: an agent or a user")
	}
	refused.object("body.executionWorkspaceSettings", in.ExecutionWorkspaceSettings)
	if in.InheritExecutionWorkspaceFromIssueID != nil && in.InheritWorkspace != nil && !*in.InheritWorkspace {
		refused.add("body.inheritWorkspace", "is false, and inheritExecutionWorkspaceFromIssueId asks for the contrary")
	}
	return refused.err()
}

// issueDraft is a task on its way into the database: what is asked for, and what it inherits.
type issueDraft struct {
	service *Service
	tx      pgx.Tx
	by      Principal
	company uuid.UUID
	in      IssueInput
	parent  *db.Issue // as the input names it
	origin  *db.Issue // whose workspace is inherited: the parent, unless the input names another
	row     db.InsertIssueParams
}

func (d *issueDraft) create(ctx context.Context) (Issue, error) {
	if err := d.authorize(ctx); err != nil {
		return Issue{}, err
	}
	d.row = db.InsertIssueParams{
		ID: newID(), CompanyID: d.company, Title: d.in.Title, Status: d.in.Status,
		ParentID: d.in.ParentID, ProjectID: d.in.ProjectID, ProjectWorkspaceID: d.in.ProjectWorkspaceID,
		AssigneeAgentID: d.in.AssigneeAgentID, AssigneeUserID: d.in.AssigneeUserID,
		ResponsibleUserID: d.in.ResponsibleUserID, ExecutionRunID: d.in.ExecutionRunID, CheckoutRunID: d.in.CheckoutRunID,
	}
	if d.row.Status == "" {
		d.row.Status = "todo"
	}
	d.creditCreator()
	for _, step := range []func(context.Context) error{d.findRelatives, d.setPrivacy, d.setProject, d.setWorkspace, d.requireOthers} {
		if err := step(ctx); err != nil {
			return Issue{}, err
		}
	}
	// The number comes last: other creations wait for the company's row until this one is committed.
	number, err := d.service.queries.TakeIssueNumber(ctx, d.tx, d.company)
	if err != nil {
		return Issue{}, fmt.Errorf("number an issue: %w", err)
	}
	d.row.IssueNumber = number.IssueCounter
	d.row.Identifier = fmt.Sprintf("%s-%d", number.IssuePrefix, number.IssueCounter)
	row, err := d.service.queries.InsertIssue(ctx, d.tx, d.row)
	if err != nil {
		return Issue{}, fmt.Errorf("insert an issue: %w", err)
	}
	return issueOf(row), nil
}

// authorize lets operators and writing members create tasks, and a running run children of a task.
func (d *issueDraft) authorize(ctx context.Context) error {
	if d.by.Role != RoleRun {
		return d.service.requireCompanyWrite(ctx, d.tx, d.by, d.company)
	}
	if err := d.service.requireCompanyRead(ctx, d.tx, d.by, d.company); err != nil {
		return err
	}
	if d.in.ParentID == nil || d.in.ExecutionRunID != nil || d.in.CheckoutRunID != nil {
		return ErrNotAllowed.Say("A run creates children of a task that it can read, and nothing else: name the parentId.")
	}
	return nil
}

func (d *issueDraft) creditCreator() {
	switch d.by.Role {
	case RoleRun:
		d.row.CreatedByAgentID = &d.by.AgentID
	default:
		if d.by.UserID != uuid.Nil {
			d.row.CreatedByUserID = &d.by.UserID
		}
	}
}

// findRelatives locks the tasks that the new one takes something from, so that a change of their
// binding or privacy comes before or after its creation, and never in between.
func (d *issueDraft) findRelatives(ctx context.Context) (err error) {
	if d.in.ParentID != nil {
		if d.parent, err = d.relative(ctx, *d.in.ParentID); err != nil {
			return err
		}
	}
	d.origin = d.parent
	if from := d.in.InheritExecutionWorkspaceFromIssueID; from != nil {
		d.origin, err = d.relative(ctx, *from)
	}
	return err
}

// requireOthers refuses an assignee and runs that do not exist in the company.
func (d *issueDraft) requireOthers(ctx context.Context) error {
	if agent := d.in.AssigneeAgentID; agent != nil {
		if err := d.service.requireAgent(ctx, d.tx, d.company, *agent); err != nil {
			return err
		}
	}
	return d.service.requireRuns(ctx, d.tx, d.company, d.in.ExecutionRunID, d.in.CheckoutRunID)
}

func (d *issueDraft) relative(ctx context.Context, id uuid.UUID) (*db.Issue, error) {
	locked, err := d.service.queries.LockIssueAsIs(ctx, d.tx, id)
	if _, err := found(locked, err, ErrIssueNotFound, "lock a related issue"); err != nil {
		return nil, err
	}
	row, err := d.service.issueIn(ctx, d.tx, d.by, d.company, id)
	if err != nil {
		return nil, err
	}
	return &row, nil
}

// issueIn is readableIssue within one company.
func (s *Service) issueIn(ctx context.Context, q db.DBTX, by Principal, company, id uuid.UUID) (db.Issue, error) {
	row, err := s.readableIssue(ctx, q, by, id)
	if err == nil && row.CompanyID != company {
		return db.Issue{}, ErrIssueNotFound
	}
	return row, err
}

// requireRuns refuses runs that do not exist in the company. A nil names none.
func (s *Service) requireRuns(ctx context.Context, q db.DBTX, company uuid.UUID, runs ...*uuid.UUID) error {
	for _, run := range runs {
		if run == nil {
			continue
		}
		known, err := s.queries.IsRunInCompany(ctx, q, db.IsRunInCompanyParams{CompanyID: company, ID: *run})
		if err := mustExist(known, err, ErrRunNotFound, "look for a run"); err != nil {
			return err
		}
	}
	return nil
}

// GetIssue returns a task that the caller may read.
func (s *Service) GetIssue(ctx context.Context, by Principal, id uuid.UUID) (Issue, error) {
	row, err := s.readableIssue(ctx, s.pool, by, id)
	if err != nil {
		return Issue{}, err
	}
	return issueOf(row), nil
}

// IssueFilter narrows a list of tasks to those that have every value that is given.
type IssueFilter struct {
	Status               *string
	ParentID             *uuid.UUID
	ProjectID            *uuid.UUID
	AssigneeAgentID      *uuid.UUID
	ExecutionWorkspaceID *uuid.UUID
}

// ListIssues lists the tasks of a company that the caller may read, the oldest first.
func (s *Service) ListIssues(ctx context.Context, by Principal, company uuid.UUID, filter IssueFilter, page Page) (List[Issue], error) {
	after, err := page.after()
	if err != nil {
		return List[Issue]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Issue]{}, err
	}
	params := db.ListIssuesParams{
		CompanyID: company, Status: filter.Status, ParentID: filter.ParentID, ProjectID: filter.ProjectID,
		AssigneeAgentID: filter.AssigneeAgentID, ExecutionWorkspaceID: filter.ExecutionWorkspaceID,
		Rows: page.rows(),
	}
	params.AfterAt, params.AfterID = after.parts()
	params.ReaderType, params.ReaderID = by.reader()
	rows, err := s.queries.ListIssues(ctx, s.pool, params)
	if err != nil {
		return List[Issue]{}, fmt.Errorf("list issues: %w", err)
	}
	return pageOf(page, rows, issueOf, func(r db.Issue) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}
