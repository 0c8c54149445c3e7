package authority

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestTasksMadeAtOnceAreNumberedWithoutGapOrRepeat(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	company := must(k.GetCompany(t.Context(), k.operator, k.home))(t)
	const many = 40
	made := make([]Issue, many)
	errs := make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			made[i], errs[i] = k.CreateIssue(t.Context(), k.operator, k.home, IssueInput{Title: "Task"}, Once{})
		})
	}
	all.Wait()
	numbers := make([]int64, 0, many)
	for i, issue := range made {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		numbers = append(numbers, issue.IssueNumber)
		if want := fmt.Sprintf("%s-%d", company.IssuePrefix, issue.IssueNumber); issue.Identifier != want {
			t.Errorf("the identifier is %s, want %s", issue.Identifier, want)
		}
	}
	slices.Sort(numbers)
	for i, number := range numbers {
		if number != int64(i+1) {
			t.Fatalf("the numbers are %v, want 1 to %d", numbers, many)
		}
	}
}

func TestARefusedTaskTakesNoNumber(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	_, err := k.CreateIssue(t.Context(), k.operator, k.home, IssueInput{Title: "Task", CheckoutRunID: ptr(uuid.New())}, Once{})
	wantRefusal(t, "an unknown run", err, ErrRunNotFound)
	if issue := k.issue(IssueInput{}); issue.IssueNumber != 1 {
		t.Errorf("the first task has number %d", issue.IssueNumber)
	}
}

func TestANewTaskIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	user, responsible := uuid.New(), uuid.New()
	operator := k.operator
	operator.UserID = uuid.New()
	run := k.runOf(k.worker, nil)
	issue := must(k.CreateIssue(t.Context(), operator, k.home, IssueInput{
		Title: "Task", Status: "blocked", AssigneeUserID: &user, ResponsibleUserID: &responsible,
		ExecutionRunID: &run.ID, CheckoutRunID: &run.ID,
	}, Once{}))(t)
	want := Issue{
		ID: issue.ID, CompanyID: k.home, IssueNumber: 1, Identifier: issue.Identifier, Title: "Task", Status: "blocked",
		AssigneeUserID: &user, ResponsibleUserID: &responsible, CreatedByUserID: &operator.UserID,
		ExecutionRunID: &run.ID, CheckoutRunID: &run.ID, Visibility: "open",
		CreatedAt: issue.CreatedAt, UpdatedAt: issue.UpdatedAt,
	}
	if diff := cmp.Diff(want, issue); diff != "" {
		t.Errorf("the new task (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(issue, must(k.GetIssue(t.Context(), k.operator, issue.ID))(t)); diff != "" {
		t.Errorf("the task as it is read (-created +read):\n%s", diff)
	}
	if issue := k.issue(IssueInput{}); issue.Status != "todo" {
		t.Errorf("the status is %s, want todo", issue.Status)
	}
}

func TestATaskNamesEverythingThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	_, err := k.CreateIssue(t.Context(), k.operator, k.home, IssueInput{
		Title: " ", Status: "open", Visibility: ptr("hidden"), AssigneeAgentID: &k.worker, AssigneeUserID: ptr(uuid.New()),
		ExecutionWorkspaceSettings: json.RawMessage(`["mode"]`), InheritWorkspace: ptr(false),
		InheritExecutionWorkspaceFromIssueID: ptr(uuid.New()),
	}, Once{})
	wantField(t, "a task with everything wrong", err, "body.title", "body.status", "body.visibility",
		"body.assigneeUserId", "body.executionWorkspaceSettings", "body.inheritWorkspace")
}

// Every id that a task may name, of another company and of nowhere: the answer is the same.
func TestWhatATaskNamesInAnotherCompanyDoesNotExist(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.isolate()
	other := newForeign(k)
	issue := k.issue(IssueInput{})
	for name, c := range map[string]struct {
		foreign uuid.UUID
		input   func(id *uuid.UUID) IssueInput
		patch   func(id uuid.UUID) IssuePatch
		want    *Refusal
	}{
		"parentId": {
			other.issue,
			func(id *uuid.UUID) IssueInput { return IssueInput{ParentID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{ParentID: To(id)} }, ErrIssueNotFound,
		},
		"inheritExecutionWorkspaceFromIssueId": {
			other.issue,
			func(id *uuid.UUID) IssueInput { return IssueInput{InheritExecutionWorkspaceFromIssueID: id} }, nil, ErrIssueNotFound,
		},
		"projectId": {
			other.project,
			func(id *uuid.UUID) IssueInput { return IssueInput{ProjectID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{ProjectID: To(id)} }, ErrProjectNotFound,
		},
		"projectWorkspaceId": {
			other.source,
			func(id *uuid.UUID) IssueInput { return IssueInput{ProjectWorkspaceID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{ProjectWorkspaceID: To(id)} }, ErrProjectWorkspaceNotFound,
		},
		"assigneeAgentId": {
			other.agent,
			func(id *uuid.UUID) IssueInput { return IssueInput{AssigneeAgentID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{AssigneeAgentID: To(id)} }, ErrAgentNotFound,
		},
		"executionWorkspaceId": {
			other.workspace,
			func(id *uuid.UUID) IssueInput { return IssueInput{ExecutionWorkspaceID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{ExecutionWorkspaceID: To(id)} }, ErrWorkspaceNotFound,
		},
		"executionRunId": {
			other.run,
			func(id *uuid.UUID) IssueInput { return IssueInput{ExecutionRunID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{ExecutionRunID: To(id)} }, ErrRunNotFound,
		},
		"checkoutRunId": {
			other.run,
			func(id *uuid.UUID) IssueInput { return IssueInput{CheckoutRunID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{CheckoutRunID: To(id)} }, ErrRunNotFound,
		},
		"privacyRootIssueId": {
			other.issue,
			func(id *uuid.UUID) IssueInput { return IssueInput{PrivacyRootIssueID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{PrivacyRootIssueID: To(id)} }, ErrIssueNotFound,
		},
		"privacyParentIssueId": {
			other.issue,
			func(id *uuid.UUID) IssueInput { return IssueInput{PrivacyParentIssueID: id} },
			func(id uuid.UUID) IssuePatch { return IssuePatch{PrivacyParentIssueID: To(id)} }, ErrIssueNotFound,
		},
	} {
		for where, id := range map[string]uuid.UUID{"of another company": c.foreign, "of nowhere": uuid.New()} {
			in := c.input(&id)
			in.Title = "Task"
			_, err := k.CreateIssue(t.Context(), k.operator, k.home, in, Once{})
			wantRefusal(t, "create with "+name+" "+where, err, c.want)
			if c.patch != nil {
				_, err = k.UpdateIssue(t.Context(), k.operator, issue.ID, c.patch(id))
				wantRefusal(t, "change with "+name+" "+where, err, c.want)
			}
		}
	}
	if diff := cmp.Diff(issue, must(k.GetIssue(t.Context(), k.operator, issue.ID))(t)); diff != "" {
		t.Errorf("refused changes changed the task:\n%s", diff)
	}
}

// foreign is another company with one row of everything.
type foreign struct {
	company, agent, project, source, issue, workspace, run uuid.UUID
}

func newForeign(k *kit) foreign {
	k.t.Helper()
	there := &kit{directory: k.directory, environment: k.environment}
	there.home = k.company()
	there.worker = k.agent(there.home)
	project := k.project(there.home, ProjectInput{})
	return foreign{
		company: there.home, agent: there.worker, project: project,
		source: there.source(project, ProjectWorkspaceInput{}), issue: there.issue(IssueInput{}).ID,
		workspace: there.workspace(WorkspaceInput{}).ID, run: there.runOf(there.worker, nil).ID,
	}
}

func TestMembersMakeTasksAndViewersDoNot(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	auditor := Principal{Role: RoleAuditor, TokenID: uuid.New()}
	for what, c := range map[string]struct {
		by   Principal
		want *Refusal
	}{
		"a member":            {k.user(k.home, "member", "active"), nil},
		"a viewer":            {k.user(k.home, "viewer", "active"), ErrNotAllowed},
		"an auditor":          {auditor, ErrNotAllowed},
		"a suspended member":  {k.user(k.home, "member", "suspended"), ErrCompanyNotFound},
		"a member of another": {k.user(k.company(), "member", "active"), ErrCompanyNotFound},
	} {
		issue, err := k.CreateIssue(t.Context(), c.by, k.home, IssueInput{Title: "Task"}, Once{})
		wantRefusal(t, what, err, c.want)
		if c.want == nil && !sameID(issue.CreatedByUserID, &c.by.UserID) {
			t.Errorf("%s: the task was created by %v, want %s", what, issue.CreatedByUserID, c.by.UserID)
		}
	}
}

func TestARunMakesChildrenOfTasksItReadsAndNothingElse(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	parent, secret := k.issue(IssueInput{}), k.private(IssueInput{})
	run := k.run(parent.ID)
	by := runPrincipal(run)
	for what, c := range map[string]struct {
		in   IssueInput
		want *Refusal
	}{
		"a child of its task":         {IssueInput{ParentID: &parent.ID}, nil},
		"a task without a parent":     {IssueInput{}, ErrNotAllowed},
		"a child of a hidden task":    {IssueInput{ParentID: &secret.ID}, ErrIssueNotFound},
		"a child with a checkout run": {IssueInput{ParentID: &parent.ID, CheckoutRunID: &run.ID}, ErrNotAllowed},
		"a child that it makes secret": {
			IssueInput{ParentID: &parent.ID, Visibility: ptr("private")}, ErrNotAllowed,
		},
	} {
		c.in.Title = "Task"
		child, err := k.CreateIssue(t.Context(), by, k.home, c.in, Once{})
		wantRefusal(t, what, err, c.want)
		if c.want == nil && !sameID(child.CreatedByAgentID, &k.worker) {
			t.Errorf("%s: it was created by the agent %v", what, child.CreatedByAgentID)
		}
	}
	k.finish(run)
	_, err := k.CreateIssue(t.Context(), by, k.home, IssueInput{Title: "Task", ParentID: &parent.ID}, Once{})
	wantRefusal(t, "a run that ended", err, ErrCompanyNotFound)
}

func TestACreatedTaskIsAnsweredAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.isolate()
	w := k.workspace(WorkspaceInput{})
	in := IssueInput{Title: "Task", ExecutionWorkspaceID: &w.ID}
	first := must(k.CreateIssue(t.Context(), k.operator, k.home, in, once("key", "body")))(t)
	again := must(k.CreateIssue(t.Context(), k.operator, k.home, in, once("key", "body")))(t)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the second answer differs:\n%s", diff)
	}
}

func TestTasksAreListedByWhatTheyAreAndPageByPage(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	project := k.project(k.home, ProjectInput{})
	parent := k.issue(IssueInput{ProjectID: &project})
	child := k.issue(IssueInput{ParentID: &parent.ID, AssigneeAgentID: &k.worker, Status: "done"})
	bound := k.bound(w.ID)
	secret := k.private(IssueInput{})
	member := k.user(k.home, "member", "active")
	ids := func(by Principal, filter IssueFilter) []uuid.UUID {
		list := must(k.ListIssues(t.Context(), by, k.home, filter, Page{}))(t)
		found := []uuid.UUID{}
		for _, issue := range list.Items {
			found = append(found, issue.ID)
		}
		return found
	}
	for what, c := range map[string]struct {
		by     Principal
		filter IssueFilter
		want   []uuid.UUID
	}{
		"all":             {k.operator, IssueFilter{}, []uuid.UUID{parent.ID, child.ID, bound.ID, secret.ID}},
		"of a member":     {member, IssueFilter{}, []uuid.UUID{parent.ID, child.ID, bound.ID}},
		"by status":       {member, IssueFilter{Status: ptr("done")}, []uuid.UUID{child.ID}},
		"by parent":       {member, IssueFilter{ParentID: &parent.ID}, []uuid.UUID{child.ID}},
		"by project":      {member, IssueFilter{ProjectID: &project}, []uuid.UUID{parent.ID, child.ID}},
		"by assignee":     {member, IssueFilter{AssigneeAgentID: &k.worker}, []uuid.UUID{child.ID}},
		"by workspace":    {member, IssueFilter{ExecutionWorkspaceID: &w.ID}, []uuid.UUID{bound.ID}},
		"by two of these": {member, IssueFilter{ProjectID: &project, Status: ptr("todo")}, []uuid.UUID{parent.ID}},
		"by none of them": {member, IssueFilter{ProjectID: ptr(uuid.New())}, []uuid.UUID{}},
	} {
		if diff := cmp.Diff(c.want, ids(c.by, c.filter)); diff != "" {
			t.Errorf("tasks %s (-want +got):\n%s", what, diff)
		}
	}
	var paged []uuid.UUID
	for page := (Page{Limit: 2}); ; {
		list := must(k.ListIssues(t.Context(), k.operator, k.home, IssueFilter{}, page))(t)
		for _, issue := range list.Items {
			paged = append(paged, issue.ID)
		}
		if list.NextCursor == nil {
			break
		}
		page.Cursor = *list.NextCursor
	}
	if diff := cmp.Diff(ids(k.operator, IssueFilter{}), paged); diff != "" {
		t.Errorf("page by page (-whole +paged):\n%s", diff)
	}
}
