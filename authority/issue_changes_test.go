package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestAChangeChangesWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	parent, run := k.issue(IssueInput{}), k.runOf(k.worker, nil)
	before := k.issue(IssueInput{Status: "blocked", AssigneeAgentID: &k.worker})
	user := uuid.New()
	after := k.change(before.ID, IssuePatch{
		Title: ptr("Another"), Status: ptr("done"), ParentID: To(parent.ID), AssigneeUserID: To(user),
		ResponsibleUserID: To(user), ExecutionRunID: To(run.ID), CheckoutRunID: To(run.ID),
	})
	want := before
	want.Title, want.Status, want.ParentID = "Another", "done", &parent.ID
	want.AssigneeUserID, want.AssigneeAgentID, want.ResponsibleUserID = &user, nil, &user
	want.ExecutionRunID, want.CheckoutRunID, want.UpdatedAt = &run.ID, &run.ID, after.UpdatedAt
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("the changed task (-want +got):\n%s", diff)
	}
	if !after.UpdatedAt.After(before.UpdatedAt) {
		t.Errorf("updatedAt went from %s to %s", before.UpdatedAt, after.UpdatedAt)
	}
	after = k.change(before.ID, IssuePatch{ParentID: ToNull[uuid.UUID](), AssigneeUserID: ToNull[uuid.UUID](), ExecutionRunID: ToNull[uuid.UUID]()})
	if after.ParentID != nil || after.AssigneeUserID != nil || after.ExecutionRunID != nil || after.CheckoutRunID == nil {
		t.Errorf("after nulls: %+v", after)
	}
}

func TestWhoChangesTasks(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	issue, secret := k.issue(IssueInput{}), k.private(IssueInput{})
	member := k.user(k.home, "member", "active")
	for what, c := range map[string]struct {
		by           Principal
		open, hidden *Refusal
	}{
		"an operator":                 {k.operator, nil, nil},
		"a member":                    {member, nil, ErrIssueNotFound},
		"a viewer":                    {k.user(k.home, "viewer", "active"), ErrNotAllowed, ErrIssueNotFound},
		"an auditor":                  {Principal{Role: RoleAuditor, TokenID: uuid.New()}, ErrNotAllowed, ErrNotAllowed},
		"a run of the task":           {runPrincipal(k.run(issue.ID)), ErrNotAllowed, ErrIssueNotFound},
		"a member of another company": {k.user(k.company(), "owner", "active"), ErrIssueNotFound, ErrIssueNotFound},
	} {
		_, err := k.UpdateIssue(t.Context(), c.by, issue.ID, IssuePatch{Title: &what})
		wantRefusal(t, what+" changes an open task", err, c.open)
		_, err = k.UpdateIssue(t.Context(), c.by, secret.ID, IssuePatch{Title: &what})
		wantRefusal(t, what+" changes a private task", err, c.hidden)
	}
	_, err := k.UpdateIssue(t.Context(), k.operator, uuid.New(), IssuePatch{})
	wantRefusal(t, "an unknown task", err, ErrIssueNotFound)
	_, err = k.UpdateIssue(t.Context(), member, issue.ID, IssuePatch{ParentID: To(secret.ID)})
	wantRefusal(t, "under a hidden parent", err, ErrIssueNotFound)
	_, err = k.UpdateIssue(t.Context(), k.operator, issue.ID, IssuePatch{
		Title: ptr(""), Status: ptr("open"), Visibility: ptr("hidden"),
		ExecutionWorkspaceSettings: To(json.RawMessage(`1`)),
	})
	wantField(t, "everything wrong", err, "body.title", "body.status", "body.visibility", "body.executionWorkspaceSettings")
}

func TestTasksDoNotStandInACircle(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	top := k.issue(IssueInput{})
	middle := k.issue(IssueInput{ParentID: &top.ID})
	bottom := k.issue(IssueInput{ParentID: &middle.ID})
	for what, parent := range map[string]uuid.UUID{"itself": top.ID, "its child": middle.ID, "its grandchild": bottom.ID} {
		_, err := k.UpdateIssue(t.Context(), k.operator, top.ID, IssuePatch{ParentID: To(parent)})
		wantField(t, "a task under "+what, err, "body.parentId")
	}
	k.change(bottom.ID, IssuePatch{ParentID: To(top.ID)}) // elsewhere under the same root
}

// Two changes that each close half of a circle: whichever is second finds the first.
func TestTwoChangesAtOnceDoNotCloseACircle(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for range 10 {
		a, c := k.issue(IssueInput{}), k.issue(IssueInput{})
		b, d := k.issue(IssueInput{ParentID: &c.ID}), k.issue(IssueInput{ParentID: &a.ID})
		errs := together(
			func() error {
				_, err := k.UpdateIssue(t.Context(), k.operator, a.ID, IssuePatch{ParentID: To(b.ID)})
				return err
			},
			func() error {
				_, err := k.UpdateIssue(t.Context(), k.operator, c.ID, IssuePatch{ParentID: To(d.ID)})
				return err
			},
		)
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("want exactly one refused, got %v", errs)
		}
	}
}

func TestAChangeOfTheBindingCountsUpAndDropsTheChoice(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	issue := f.issue(IssueInput{ProjectID: &f.project})
	choose := func(revision int64) {
		must(f.SelectWorkspace(t.Context(), f.operator, issue.ID, SelectionInput{
			Selection: Selection{Kind: SelectTaskDirectory}, ExpectedBindingRevision: revision, RequestKey: uuid.NewString(),
		}))(t)
	}
	for i, c := range []struct {
		what  string
		patch IssuePatch
		want  bindingOf
	}{
		{
			"bind",
			IssuePatch{ExecutionWorkspaceID: To(f.workspace.ID)},
			bindingOf{Project: "project", Source: "oldest", Workspace: "workspace", Preference: "reuse_existing", Mode: "shared_workspace"},
		},
		{
			"bind to another, whose source is null",
			IssuePatch{ExecutionWorkspaceID: To(f.spare.ID)},
			bindingOf{Project: "project", Workspace: "spare", Preference: "reuse_existing", Mode: "isolated_workspace"},
		},
		{
			"unbind",
			IssuePatch{ExecutionWorkspaceID: ToNull[uuid.UUID]()},
			bindingOf{Project: "project", Mode: "isolated_workspace"},
		},
		{
			"another source",
			IssuePatch{ProjectWorkspaceID: To(f.oldest)},
			bindingOf{Project: "project", Source: "oldest", Mode: "isolated_workspace"},
		},
		{
			"a preference",
			IssuePatch{ExecutionWorkspacePreference: To("isolated_workspace")},
			bindingOf{Project: "project", Source: "oldest", Preference: "isolated_workspace", Mode: "isolated_workspace"},
		},
		{
			"settings",
			IssuePatch{ExecutionWorkspaceSettings: To(json.RawMessage(`{"mode": "operator_branch"}`))},
			bindingOf{Project: "project", Source: "oldest", Preference: "isolated_workspace", Mode: "operator_branch"},
		},
		{
			"another project, and with it the source",
			IssuePatch{ProjectID: To(f.otherProject)},
			bindingOf{Project: "other project", Preference: "isolated_workspace", Mode: "operator_branch"},
		},
	} {
		choose(int64(i))
		changed := f.change(issue.ID, c.patch)
		c.want.Revision = int64(i + 1)
		if diff := cmp.Diff(c.want, f.binding(t, changed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
		if changed.WorkspacePendingSelection != nil {
			t.Errorf("%s: the choice waits still: %s", c.what, changed.WorkspacePendingSelection)
		}
	}
}

func TestAChangeOfSomethingElseLeavesTheBindingAndTheChoice(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	issue := f.issue(IssueInput{ParentID: &f.parent.ID})
	must(f.SelectWorkspace(t.Context(), f.operator, issue.ID, SelectionInput{
		Selection: Selection{Kind: SelectTaskDirectory}, RequestKey: "key",
	}))(t)
	f.run(issue.ID)
	changed := f.change(issue.ID, IssuePatch{
		Title: ptr("Another"), ExecutionWorkspaceID: To(f.workspace.ID), ExecutionWorkspacePreference: To("reuse_existing"),
		ExecutionWorkspaceSettings: To(json.RawMessage(`{"mode":"shared_workspace"}`)),
		ProjectWorkspaceID:         To(f.oldest), ProjectID: To(f.otherProject),
	})
	want := bindingOf{Project: "other project", Source: "oldest", Workspace: "workspace", Preference: "reuse_existing", Mode: "shared_workspace"}
	if diff := cmp.Diff(want, f.binding(t, changed)); diff != "" {
		t.Errorf("the binding (-want +got):\n%s", diff)
	}
	if changed.WorkspacePendingSelection == nil {
		t.Error("the choice was dropped")
	}
}

func TestTheBindingOfATaskStaysWhileARunOfItIsRunning(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	issue := k.issue(IssueInput{})
	byColumn := k.run(issue.ID)
	byContext, _, err := k.CreateRun(t.Context(), k.operator, k.home, RunInput{
		AgentID: k.worker, ContextSnapshot: json.RawMessage(`{"issueId": "` + issue.ID.String() + `"}`),
	}, Once{})
	if err != nil {
		t.Fatal(err)
	}
	bind := IssuePatch{ExecutionWorkspaceID: To(w.ID)}
	for _, run := range []Run{byColumn, byContext} {
		_, err := k.UpdateIssue(t.Context(), k.operator, issue.ID, bind)
		wantRefusal(t, "while a run is running", err, ErrTaskRunActive)
		k.finish(run)
	}
	if got := must(k.GetIssue(t.Context(), k.operator, issue.ID))(t); got.ExecutionWorkspaceID != nil || got.WorkspaceBindingRevision != 0 {
		t.Errorf("refused changes bound the task: %+v", got)
	}
	k.change(issue.ID, bind)
}

// A run that begins and a change of the binding, at once: the run never begins between the change's
// look at the runs and its commit, so the run's reservation finds the binding that it began with.
func TestARunAndAChangeOfTheBindingDoNotPassEachOther(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	for range 20 {
		issue := k.issue(IssueInput{})
		var run Run
		errs := together(
			func() (err error) {
				run, _, err = k.CreateRun(t.Context(), k.operator, k.home, RunInput{AgentID: k.worker, IssueID: &issue.ID}, Once{})
				return err
			},
			func() error {
				_, err := k.UpdateIssue(t.Context(), k.operator, issue.ID, IssuePatch{ExecutionWorkspaceID: To(w.ID)})
				return err
			},
		)
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		changed := must(k.GetIssue(t.Context(), k.operator, issue.ID))(t)
		switch {
		case errs[1] == nil && !changed.UpdatedAt.Before(run.CreatedAt):
			t.Errorf("the binding changed at %s, under the run that began at %s", changed.UpdatedAt, run.CreatedAt)
		case errs[1] != nil:
			wantRefusal(t, "the change", errs[1], ErrTaskRunActive)
		}
	}
}

func TestTheWorkspaceDecidesTheSourceOfATask(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	_, err := f.UpdateIssue(t.Context(), f.operator, f.parent.ID, IssuePatch{ProjectWorkspaceID: To(f.primary)})
	wantField(t, "another source than the workspace's", err, "body.projectWorkspaceId")
}

// Unbinding a task does not take its files out of the tree.
func TestAnUnboundPrivateTaskGoesOnToGuardTheWorkspace(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	w := k.workspace(WorkspaceInput{})
	secret := k.private(IssueInput{})
	k.change(secret.ID, IssuePatch{ExecutionWorkspaceID: To(w.ID)})
	k.change(secret.ID, IssuePatch{ExecutionWorkspaceID: ToNull[uuid.UUID]()})
	issue := k.issue(IssueInput{})
	_, err := k.UpdateIssue(t.Context(), member, issue.ID, IssuePatch{ExecutionWorkspaceID: To(w.ID)})
	wantRefusal(t, "binding to a workspace with private files", err, ErrWorkspaceNotFound)
}
