package authority

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func choose(selection Selection, revision int64, key string) SelectionInput {
	return SelectionInput{Selection: selection, ExpectedBindingRevision: revision, RequestKey: key}
}

func existing(workspace uuid.UUID) Selection {
	return Selection{Kind: SelectExisting, WorkspaceID: &workspace}
}

var taskDirectory = Selection{Kind: SelectTaskDirectory}

func fromSource(source uuid.UUID, mode string) Selection {
	return Selection{Kind: SelectConfiguredSource, ProjectWorkspaceID: &source, Mode: mode}
}

// selected schedules a choice as an operator.
func (k *kit) selected(issue uuid.UUID, in SelectionInput) {
	k.t.Helper()
	must(k.SelectWorkspace(k.t.Context(), k.operator, issue, in))(k.t)
}

// applied applies a choice for a new run of the task, and returns the task as it is then.
func (k *kit) applied(issue uuid.UUID) Issue {
	k.t.Helper()
	run := k.run(issue)
	applied, _, err := k.ApplySelection(k.t.Context(), runPrincipal(run), issue, run.ID)
	if err != nil || !applied {
		k.t.Fatalf("apply: %v, %v", applied, err)
	}
	k.finish(run)
	return must(k.GetIssue(k.t.Context(), k.operator, issue))(k.t)
}

// An agent's own run chooses a workspace by reading rights alone: the project's policy is about
// assigning tasks, and gives or takes no files.
func TestARunChoosesAnExistingWorkspaceInAProtectedProject(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	policy := json.RawMessage(`{"authorizationPolicy": {"assignmentPolicy": {"mode": "protected"}}}`)
	project := k.project(k.home, ProjectInput{ExecutionWorkspacePolicy: policy})
	source := k.source(project, ProjectWorkspaceInput{})
	k.membership(k.home, PrincipalRef{Type: "agent", ID: k.worker}, "member", "active")
	origin := k.issue(IssueInput{ProjectID: &project})
	w := k.workspace(WorkspaceInput{ProjectID: &project, SourceIssueID: &origin.ID, Mode: "shared_workspace"})
	task := k.issue(IssueInput{})
	first := k.run(task.ID)
	_, err := k.SelectWorkspace(t.Context(), runPrincipal(first), task.ID, choose(fromSource(source, SourceShared), 0, "shared"))
	wantRefusal(t, "the source that the project's tasks share", err, ErrNotAllowed)
	answer := must(k.SelectWorkspace(t.Context(), runPrincipal(first), task.ID, choose(existing(w.ID), 0, "key")))(t)
	if diff := cmp.Diff(SelectionAnswer{"scheduled", "next_normal_admission", 0}, answer); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	if got := must(k.GetIssue(t.Context(), k.operator, task.ID))(t); got.ExecutionWorkspaceID != nil || got.WorkspaceBindingRevision != 0 {
		t.Errorf("the choice changed the binding: %+v", got)
	}
	k.finish(first)

	next := k.run(task.ID)
	applied, revision, err := k.ApplySelection(t.Context(), runPrincipal(next), task.ID, next.ID)
	if err != nil || !applied || revision != 1 {
		t.Fatalf("apply: %v, revision %d, %v", applied, revision, err)
	}
	reserved := k.reserved(next)
	if reserved.ID != w.ID || !sameID(reserved.SourceIssueID, &origin.ID) || !sameID(reserved.Authority.WriterRunID, &next.ID) {
		t.Errorf("reserved %+v", reserved)
	}
}

func TestTheSameRequestAnswersWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	task := k.issue(IssueInput{})
	first, second := choose(existing(w.ID), 0, "first"), choose(taskDirectory, 0, "second")
	ask := func(what string, in SelectionInput, want SelectionAnswer) {
		t.Helper()
		got, err := k.SelectWorkspace(t.Context(), k.operator, task.ID, in)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	pending := func() string {
		document := must(k.GetTaskWorkspace(t.Context(), k.operator, task.ID))(t).PendingSelection
		if document == nil {
			return ""
		}
		return document.RequestKey
	}
	scheduled := SelectionAnswer{"scheduled", "next_normal_admission", 0}
	ask("the first", first, scheduled)
	ask("the first again", first, scheduled)
	ask("a newer one", second, scheduled)
	if got := pending(); got != "second" {
		t.Errorf("%q is pending, want the newer one", got)
	}
	ask("the first, late", first, scheduled)
	if got := pending(); got != "second" {
		t.Errorf("a repeated request made %q pending again", got)
	}
	k.applied(task.ID)
	ask("the second, applied", second, SelectionAnswer{"applied", "next_normal_admission", 1})
	if got := pending(); got != "" {
		t.Errorf("%q is pending after it was applied", got)
	}
	_, err := k.SelectWorkspace(t.Context(), k.operator, task.ID, choose(existing(w.ID), 0, "third"))
	wantRefusal(t, "a new request for the old binding", err, ErrBindingChanged)
	for what, other := range map[string]SelectionInput{
		"another choice":   choose(taskDirectory, 0, "first"),
		"another revision": choose(existing(w.ID), 1, "first"),
		"after applying":   choose(existing(w.ID), 1, "second"),
	} {
		_, err := k.SelectWorkspace(t.Context(), k.operator, task.ID, other)
		wantRefusal(t, what+" under a used key", err, ErrSelectionKeyReused)
	}
	other := k.issue(IssueInput{})
	must(k.SelectWorkspace(t.Context(), k.operator, other.ID, choose(taskDirectory, 0, "first")))(t) // a key is a task's own
}

func TestOfManyChoicesAtOnceEachIsScheduledOnceAndOneIsPending(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task := k.issue(IssueInput{})
	var workspaces []uuid.UUID
	for range 4 {
		workspaces = append(workspaces, k.workspace(WorkspaceInput{}).ID)
	}
	var calls []func() error
	for i := range 24 {
		calls = append(calls, func() error {
			in := choose(existing(workspaces[i%4]), 0, fmt.Sprintf("key %d", i%4))
			_, err := k.SelectWorkspace(t.Context(), k.operator, task.ID, in)
			return err
		})
	}
	for _, err := range together(calls...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var scheduled int
	query := "SELECT count(*) FROM events WHERE issue_id = $1 AND kind = 'selection.scheduled'"
	if err := k.database.Pool.QueryRow(t.Context(), query, task.ID).Scan(&scheduled); err != nil {
		t.Fatal(err)
	}
	if scheduled != 4 {
		t.Errorf("%d choices are on record, want 4", scheduled)
	}
	if got := must(k.GetTaskWorkspace(t.Context(), k.operator, task.ID))(t); got.PendingSelection == nil || got.BindingRevision != 0 {
		t.Errorf("the task: %+v", got)
	}
}

func TestWhoChooses(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task, other, secret := k.issue(IssueInput{}), k.issue(IssueInput{}), k.private(IssueInput{})
	run := k.run(task.ID)
	ended := k.run(task.ID)
	k.finish(ended)
	queued, _, err := k.CreateRun(t.Context(), k.operator, k.home, RunInput{AgentID: k.worker, IssueID: &task.ID, Status: "queued"}, Once{})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		by    Principal
		issue uuid.UUID
		want  *Refusal
	}{
		"an operator":                   {k.operator, task.ID, nil},
		"a member":                      {k.user(k.home, "member", "active"), task.ID, nil},
		"a viewer":                      {k.user(k.home, "viewer", "active"), task.ID, ErrNotAllowed},
		"an auditor":                    {Principal{Role: RoleAuditor, TokenID: uuid.New()}, task.ID, ErrNotAllowed},
		"a run for its task":            {runPrincipal(run), task.ID, nil},
		"a run for another task":        {runPrincipal(run), other.ID, ErrNotAllowed},
		"a run that ended":              {runPrincipal(ended), task.ID, ErrIssueNotFound},
		"a run that did not start":      {runPrincipal(queued), task.ID, ErrIssueNotFound},
		"a member, for a hidden task":   {k.user(k.home, "member", "active"), secret.ID, ErrIssueNotFound},
		"a member of another company":   {k.user(k.company(), "owner", "active"), task.ID, ErrIssueNotFound},
		"an operator, for no such task": {k.operator, uuid.New(), ErrIssueNotFound},
	} {
		_, err := k.SelectWorkspace(t.Context(), c.by, c.issue, choose(taskDirectory, 0, what))
		wantRefusal(t, what, err, c.want)
	}
}

func TestWhoDoesNotReadTheTasksWorkspaceDoesNotReplaceIt(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	w := k.workspace(WorkspaceInput{})
	task := k.bound(w.ID)
	k.change(k.bound(w.ID).ID, IssuePatch{Visibility: ptr("private")})
	_, err := k.SelectWorkspace(t.Context(), member, task.ID, choose(taskDirectory, 1, "key"))
	wantRefusal(t, "a member who does not read the workspace", err, ErrWorkspaceNotFound)
	if got := must(k.GetTaskWorkspace(t.Context(), member, task.ID))(t); got.Workspace != nil || len(got.Capabilities) > 0 {
		t.Errorf("the task shows %+v to a member who does not read its workspace", got)
	}
	if got := must(k.GetTaskWorkspace(t.Context(), k.operator, task.ID))(t); got.Workspace == nil || got.Workspace.ID != w.ID {
		t.Errorf("the task shows %+v to an operator", got)
	}
}

func TestWhichWorkspacesMayBeChosen(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	task := k.issue(IssueInput{})
	foreign := newForeign(k)
	hidden := k.workspace(WorkspaceInput{SourceIssueID: ptr(k.private(IssueInput{}).ID)})
	in := func(status string) uuid.UUID {
		w := k.workspace(WorkspaceInput{})
		must(k.UpdateWorkspace(t.Context(), k.operator, w.ID, WorkspacePatch{Status: &status}))(t)
		return w.ID
	}
	for what, c := range map[string]struct {
		workspace uuid.UUID
		want      *Refusal
	}{
		"an active one":             {k.workspace(WorkspaceInput{}).ID, nil},
		"an idle one":               {in("idle"), nil},
		"one in review":             {in("in_review"), ErrWorkspaceUnavailable},
		"an archived one":           {in("archived"), ErrWorkspaceUnavailable},
		"one with a failed cleanup": {in("cleanup_failed"), ErrWorkspaceUnavailable},
		"a hidden one":              {hidden.ID, ErrWorkspaceUnavailable},
		"another company's":         {foreign.workspace, ErrWorkspaceUnavailable},
		"one of nowhere":            {uuid.New(), ErrWorkspaceUnavailable},
	} {
		_, err := k.SelectWorkspace(t.Context(), member, task.ID, choose(existing(c.workspace), 0, what))
		wantRefusal(t, what, err, c.want)
		_, err = k.SelectWorkspace(t.Context(), k.operator, task.ID, choose(existing(c.workspace), 0, what+", by an operator"))
		if what == "a hidden one" {
			c.want = nil // an operator reads all
		}
		wantRefusal(t, what+", by an operator", err, c.want)
	}
}

func TestAPrivateTaskIsNotChosenIntoAWorkspaceThatOpenTasksShare(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	project := k.project(k.home, ProjectInput{})
	source := k.source(project, ProjectWorkspaceInput{})
	w := k.workspace(WorkspaceInput{})
	k.bound(w.ID)
	secret := k.private(IssueInput{AssigneeUserID: &member.UserID, ProjectID: &project})
	for what, selection := range map[string]Selection{"existing": existing(w.ID), "shared": fromSource(source, SourceShared)} {
		_, err := k.SelectWorkspace(t.Context(), member, secret.ID, choose(selection, 0, "member "+what))
		wantRefusal(t, what+", by a member", err, ErrNotAllowed)
		_, err = k.SelectWorkspace(t.Context(), k.operator, secret.ID, choose(selection, 0, "operator "+what))
		wantRefusal(t, what+", by an operator", err, nil)
	}
}

func TestWhichSourcesMayBeChosen(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	project, other := k.project(k.home, ProjectInput{}), k.project(k.home, ProjectInput{})
	hidden := k.project(k.home, ProjectInput{Visibility: "private"})
	member := k.user(k.home, "member", "active")
	task, loose := k.issue(IssueInput{ProjectID: &project}), k.issue(IssueInput{})
	git := k.source(project, ProjectWorkspaceInput{SourceType: "git_repo", RepoURL: ptr("https://example.org/repo.git")})
	managed := k.source(project, ProjectWorkspaceInput{SourceType: "remote_managed"})
	foreign := newForeign(k)
	for what, c := range map[string]struct {
		issue, source uuid.UUID
		want          *Refusal
	}{
		"an empty one":                    {task.ID, k.source(project, ProjectWorkspaceInput{}), nil},
		"a managed one":                   {task.ID, managed, nil},
		"one by a task without a project": {loose.ID, managed, nil},
		"one that cannot be fetched":      {task.ID, git, ErrSourceUnsupported},
		"another project's":               {task.ID, k.source(other, ProjectWorkspaceInput{}), ErrProjectWorkspaceNotFound},
		"a hidden project's":              {loose.ID, k.source(hidden, ProjectWorkspaceInput{}), ErrProjectWorkspaceNotFound},
		"another company's":               {loose.ID, foreign.source, ErrProjectWorkspaceNotFound},
		"one of nowhere":                  {loose.ID, uuid.New(), ErrProjectWorkspaceNotFound},
	} {
		for _, mode := range []string{SourceShared, SourceIsolated} {
			_, err := k.SelectWorkspace(t.Context(), member, c.issue, choose(fromSource(c.source, mode), 0, what+mode))
			wantRefusal(t, what+", "+mode, err, c.want)
		}
	}
}

func TestASelectionSaysOneThing(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task, id := k.issue(IssueInput{}), uuid.New()
	for what, c := range map[string]struct {
		selection Selection
		fields    []string
	}{
		"no kind":                   {Selection{}, []string{"body.selection.kind"}},
		"an unknown kind":           {Selection{Kind: "newest"}, []string{"body.selection.kind"}},
		"existing without which":    {Selection{Kind: SelectExisting}, []string{"body.selection.workspaceId"}},
		"a source without which":    {Selection{Kind: SelectConfiguredSource}, []string{"body.selection.projectWorkspaceId", "body.selection.mode"}},
		"a source in no mode":       {fromSource(id, "mine"), []string{"body.selection.mode"}},
		"a directory and something": {Selection{Kind: SelectTaskDirectory, WorkspaceID: &id, Mode: SourceShared}, []string{"body.selection.workspaceId", "body.selection.mode"}},
	} {
		_, err := k.SelectWorkspace(t.Context(), k.operator, task.ID, choose(c.selection, 0, "key"))
		wantField(t, what, err, c.fields...)
	}
	_, err := k.SelectWorkspace(t.Context(), k.operator, task.ID, choose(taskDirectory, -1, " "))
	wantField(t, "no key and no revision", err, "body.requestKey", "body.expectedBindingRevision")
}

func TestWhatATaskShowsOfItsWorkspace(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	project := k.project(k.home, ProjectInput{})
	w := k.workspace(WorkspaceInput{})
	task := k.issue(IssueInput{ProjectID: &project})
	member, viewer := k.user(k.home, "member", "active"), k.user(k.home, "viewer", "active")
	in := choose(existing(w.ID), 0, "key")
	must(k.SelectWorkspace(t.Context(), member, task.ID, in))(t)
	pending := PendingSelection{RequestKey: "key", Selection: in.Selection, ChosenBy: chooserOf(member)}
	all := []string{
		"select_task_directory", "select_existing", "select_configured_source_managed_isolated", "select_configured_source_shared",
	}
	show := func(by Principal) TaskWorkspace { return must(k.GetTaskWorkspace(t.Context(), by, task.ID))(t) }
	want := TaskWorkspace{IssueID: task.ID, PendingSelection: &pending, Capabilities: all}
	if diff := cmp.Diff(want, show(member)); diff != "" {
		t.Errorf("before it is applied (-want +got):\n%s", diff)
	}
	run := k.run(task.ID)
	if applied, _, err := k.ApplySelection(t.Context(), k.operator, task.ID, run.ID); err != nil || !applied {
		t.Fatal(applied, err)
	}
	want = TaskWorkspace{
		IssueID: task.ID, BindingRevision: 1, Workspace: &w, Capabilities: []string{},
		Selection: &AppliedSelection{PendingSelection: pending, BindingRevision: 1, RunID: run.ID},
	}
	if diff := cmp.Diff(want, show(viewer)); diff != "" {
		t.Errorf("after it was applied, for a viewer (-want +got):\n%s", diff)
	}
	protected := json.RawMessage(`{"authorizationPolicy": {"assignmentPolicy": {"mode": "protected"}}}`)
	must(k.UpdateProject(t.Context(), k.operator, project, ProjectPatch{ExecutionWorkspacePolicy: To(protected)}))(t)
	if diff := cmp.Diff(all[:3], show(member).Capabilities); diff != "" {
		t.Errorf("in a protected project (-want +got):\n%s", diff)
	}
}
