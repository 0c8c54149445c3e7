package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestEachKindOfChoiceBecomesItsBinding(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "operator_branch")
	task := f.issue(IssueInput{ParentID: &f.parent.ID})
	for i, c := range []struct {
		what   string
		choice Selection
		want   bindingOf
	}{
		{
			"its own directory", taskDirectory,
			bindingOf{Project: "project", Preference: "isolated_workspace", Mode: "isolated_workspace"},
		},
		{
			"an existing workspace", existing(f.workspace.ID),
			bindingOf{Project: "project", Source: "oldest", Workspace: "workspace", Preference: "reuse_existing", Mode: "operator_branch"},
		},
		{
			"an existing workspace without a source", existing(f.spare.ID),
			bindingOf{Project: "project", Workspace: "spare", Preference: "reuse_existing", Mode: "isolated_workspace"},
		},
		{
			"a new one from a source", fromSource(f.primary, SourceIsolated),
			bindingOf{Project: "project", Source: "primary", Preference: "isolated_workspace", Mode: "isolated_workspace"},
		},
		{
			"the one that the source's tasks share", fromSource(f.primary, SourceShared),
			bindingOf{Project: "project", Source: "primary", Workspace: "shared", Preference: "reuse_existing", Mode: "shared_workspace"},
		},
	} {
		f.selected(task.ID, choose(c.choice, int64(i), c.what))
		got := f.applied(task.ID)
		if c.want.Workspace == "shared" {
			f.names[*got.ExecutionWorkspaceID] = "shared"
		}
		c.want.Revision = int64(i + 1)
		if diff := cmp.Diff(c.want, f.binding(t, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestAnUnboundTaskGetsANewWorkspaceOfItsChosenSource(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	task := f.issue(IssueInput{ParentID: &f.parent.ID})
	for i, c := range []struct {
		choice Selection
		source string
	}{{taskDirectory, ""}, {fromSource(f.primary, SourceIsolated), "primary"}} {
		f.selected(task.ID, choose(c.choice, int64(2*i), c.choice.Kind))
		f.applied(task.ID)
		run := f.run(task.ID)
		made := f.reserved(run)
		if made.ID == f.workspace.ID || made.Mode != "isolated_workspace" || f.of(made.ProjectWorkspaceID) != c.source {
			t.Errorf("%s: the next reservation answered %+v", c.choice.Kind, made)
		}
		must(f.Release(t.Context(), runPrincipal(run), Fence{WorkspaceID: made.ID, RunID: run.ID, Epoch: made.Authority.Epoch}, false))(t)
		f.finish(run)
	}
}

func TestTasksOfOneSourceShareOneWorkspaceAlsoWhenTheyComeAtOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	project := k.project(k.home, ProjectInput{})
	source := k.source(project, ProjectWorkspaceInput{})
	tasks, calls := []Issue{}, []func() error{}
	for range 6 {
		task := k.issue(IssueInput{ProjectID: &project})
		k.selected(task.ID, choose(fromSource(source, SourceShared), 0, "key"))
		run := k.run(task.ID)
		tasks = append(tasks, task)
		calls = append(calls, func() error {
			_, _, err := k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
			return err
		})
	}
	for _, err := range together(calls...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	shared := map[uuid.UUID]bool{}
	for _, task := range tasks {
		bound := must(k.GetTaskWorkspace(t.Context(), k.operator, task.ID))(t).Workspace
		if bound == nil || bound.Mode != "shared_workspace" || bound.Authority.SnapshotID == nil {
			t.Fatalf("a task is bound to %+v", bound)
		}
		shared[bound.ID] = true
	}
	if len(shared) != 1 {
		t.Errorf("the tasks are in %d workspaces", len(shared))
	}
}

func TestAChoiceIsAppliedOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	for range 10 {
		task := k.issue(IssueInput{})
		k.selected(task.ID, choose(existing(w.ID), 0, "key"))
		run := k.run(task.ID)
		var applied [4]bool
		var calls []func() error
		for i := range applied {
			calls = append(calls, func() (err error) {
				var revision int64
				applied[i], revision, err = k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
				if err == nil && revision != 1 {
					t.Errorf("the revision is %d, want 1", revision)
				}
				return err
			})
		}
		times := 0
		for i, err := range together(calls...) {
			if err != nil {
				t.Fatal(err)
			}
			if applied[i] {
				times++
			}
		}
		if times != 1 {
			t.Fatalf("the choice was applied %d times", times)
		}
	}
}

func TestWithoutAChoiceNothingIsApplied(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	task := k.bound(w.ID)
	run := k.run(task.ID)
	applied, revision, err := k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
	if applied || revision != 1 || err != nil {
		t.Errorf("applied %v at revision %d, %v", applied, revision, err)
	}
}

func TestAChoiceWaitsUntilTheTaskIsQuiet(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	task := k.bound(w.ID)
	k.selected(task.ID, choose(taskDirectory, 1, "key"))
	first, second := k.run(task.ID), k.run(task.ID)
	for _, run := range []Run{first, second} {
		_, _, err := k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
		wantRefusal(t, "beside another run", err, ErrTaskRunActive)
	}
	k.finish(first)
	reserved := k.reserved(second)
	_, _, err := k.ApplySelection(t.Context(), runPrincipal(second), task.ID, second.ID)
	wantRefusal(t, "by a run that holds a workspace", err, ErrTaskRunActive)
	must(k.Release(t.Context(), runPrincipal(second), Fence{WorkspaceID: w.ID, RunID: second.ID, Epoch: reserved.Authority.Epoch}, false))(t)
	applied, _, err := k.ApplySelection(t.Context(), runPrincipal(second), task.ID, second.ID)
	if err != nil || !applied {
		t.Errorf("when the task is quiet: %v, %v", applied, err)
	}
}

func TestWhoAppliesAChoiceAndForWhichRun(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task, other := k.issue(IssueInput{}), k.issue(IssueInput{})
	run, stranger := k.run(task.ID), k.run(other.ID)
	ended := k.run(task.ID)
	k.finish(ended)
	foreign := newForeign(k)
	for what, c := range map[string]struct {
		by         Principal
		issue, run uuid.UUID
		want       *Refusal
	}{
		"the run itself":              {runPrincipal(run), task.ID, run.ID, nil},
		"an operator":                 {k.operator, task.ID, run.ID, nil},
		"a member":                    {k.user(k.home, "member", "active"), task.ID, run.ID, nil},
		"a viewer":                    {k.user(k.home, "viewer", "active"), task.ID, run.ID, ErrNotAllowed},
		"a run for another run":       {runPrincipal(stranger), task.ID, run.ID, ErrNotAllowed},
		"a run for another task":      {runPrincipal(stranger), task.ID, stranger.ID, ErrNotAllowed},
		"for a run of another task":   {k.operator, task.ID, stranger.ID, ErrRunIdentity},
		"for a run that ended":        {k.operator, task.ID, ended.ID, ErrRunIdentity},
		"for another company's run":   {k.operator, task.ID, foreign.run, ErrRunNotFound},
		"for no such run":             {k.operator, task.ID, uuid.New(), ErrRunNotFound},
		"for another company's task":  {runPrincipal(run), foreign.issue, run.ID, ErrIssueNotFound},
		"a member of another company": {k.user(foreign.company, "owner", "active"), task.ID, run.ID, ErrIssueNotFound},
	} {
		_, _, err := k.ApplySelection(t.Context(), c.by, c.issue, c.run)
		wantRefusal(t, what, err, c.want)
	}
}

func TestAChoiceForABindingThatChangedIsStale(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task := k.issue(IssueInput{})
	k.selected(task.ID, choose(existing(k.workspace(WorkspaceInput{}).ID), 0, "key"))
	run := k.run(task.ID)
	k.reserved(run) // which binds the task to a new workspace
	_, _, err := k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
	wantRefusal(t, "after the task was bound", err, ErrPendingSelectionStale)
}

// What was right when it was chosen is asked again when it is applied.
func TestRightsAreAskedForAgainWhenAChoiceIsApplied(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(k *kit, s *chosen)
		want   *Refusal
	}{
		"nothing changed": {func(*kit, *chosen) {}, nil},
		"the workspace closed": {func(k *kit, s *chosen) {
			must(k.UpdateWorkspace(k.t.Context(), k.operator, s.workspace, WorkspacePatch{Status: ptr("archived")}))(k.t)
		}, ErrPendingSelectionStale},
		"a task behind it became private": {func(k *kit, s *chosen) {
			k.change(s.origin, IssuePatch{Visibility: ptr("private")})
		}, ErrWorkspaceUnavailable},
		"it became private, and only the caller reads it": {func(k *kit, s *chosen) {
			k.change(s.origin, IssuePatch{Visibility: ptr("private")})
			s.by = k.operator
		}, ErrWorkspaceUnavailable},
		"it became private, and only the run's agent reads it": {func(k *kit, s *chosen) {
			k.change(s.origin, IssuePatch{Visibility: ptr("private"), AssigneeAgentID: To(k.worker)})
			s.by = s.member
		}, ErrWorkspaceUnavailable},
		"its project became private": {func(k *kit, s *chosen) {
			must(k.UpdateProject(k.t.Context(), k.operator, s.project, ProjectPatch{Visibility: ptr("private")}))(k.t)
		}, ErrWorkspaceUnavailable},
		"who chose was suspended": {func(k *kit, s *chosen) {
			k.membership(k.home, PrincipalRef{Type: "user", ID: s.member.UserID}, "member", "suspended")
		}, ErrPendingSelectionStale},
		"the task became private": {func(k *kit, s *chosen) {
			k.change(s.task, IssuePatch{Visibility: ptr("private"), AssigneeAgentID: To(k.worker)})
		}, ErrNotAllowed},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			s := newChosen(k)
			run := k.run(s.task)
			s.by = runPrincipal(run)
			c.change(k, s)
			applied, _, err := k.ApplySelection(t.Context(), s.by, s.task, run.ID)
			wantRefusal(t, what, err, c.want)
			if applied != (c.want == nil) {
				t.Errorf("applied is %v", applied)
			}
			if got := must(k.GetIssue(t.Context(), k.operator, s.task))(t); (got.ExecutionWorkspaceID != nil) != applied {
				t.Errorf("the task is bound to %v", got.ExecutionWorkspaceID)
			}
		})
	}
}

// chosen is a task whose pending selection, by a member, is a workspace that another task shares.
type chosen struct {
	project, origin, workspace, task uuid.UUID
	member, by                       Principal
}

func newChosen(k *kit) *chosen {
	k.t.Helper()
	s := &chosen{member: k.user(k.home, "member", "active")}
	s.project = k.project(k.home, ProjectInput{})
	s.workspace = k.workspace(WorkspaceInput{ProjectID: &s.project}).ID
	s.origin = k.bound(s.workspace).ID
	s.task = k.issue(IssueInput{}).ID
	must(k.SelectWorkspace(k.t.Context(), s.member, s.task, choose(existing(s.workspace), 0, "key")))(k.t)
	return s
}

func TestTheRightToShareASourceIsThatOfWhoChose(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	protected := json.RawMessage(`{"authorizationPolicy": {"assignmentPolicy": {"mode": "protected"}}}`)
	project := k.project(k.home, ProjectInput{})
	source := k.source(project, ProjectWorkspaceInput{})
	member := k.user(k.home, "member", "active")
	byMember, byOperator := k.issue(IssueInput{ProjectID: &project}), k.issue(IssueInput{ProjectID: &project})
	must(k.SelectWorkspace(t.Context(), member, byMember.ID, choose(fromSource(source, SourceShared), 0, "key")))(t)
	k.selected(byOperator.ID, choose(fromSource(source, SourceShared), 0, "key"))
	must(k.UpdateProject(t.Context(), k.operator, project, ProjectPatch{ExecutionWorkspacePolicy: To(protected)}))(t)
	for what, c := range map[string]struct {
		task uuid.UUID
		want *Refusal
	}{
		"a member chose, who may not any more": {byMember.ID, ErrNotAllowed},
		"an operator chose":                    {byOperator.ID, nil},
	} {
		run := k.run(c.task)
		_, _, err := k.ApplySelection(t.Context(), runPrincipal(run), c.task, run.ID)
		wantRefusal(t, what, err, c.want)
	}
}

func TestATaskMadePrivateDoesNotJoinTheTasksOfASourceByAMembersChoice(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	project := k.project(k.home, ProjectInput{})
	source := k.source(project, ProjectWorkspaceInput{})
	for what, c := range map[string]struct {
		by   Principal
		want *Refusal
	}{
		"a member chose":    {k.user(k.home, "member", "active"), ErrNotAllowed},
		"an operator chose": {k.operator, nil},
	} {
		task := k.issue(IssueInput{ProjectID: &project})
		must(k.SelectWorkspace(t.Context(), c.by, task.ID, choose(fromSource(source, SourceShared), 0, "key")))(t)
		k.change(task.ID, IssuePatch{Visibility: ptr("private"), AssigneeAgentID: To(k.worker)})
		run := k.run(task.ID)
		_, _, err := k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
		wantRefusal(t, what, err, c.want)
	}
}

// A choice is applied and its workspace closed, at once: the task is never bound to a workspace
// that had closed before.
func TestAChoiceAndAClosingDoNotPassEachOther(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for range 20 {
		w := k.workspace(WorkspaceInput{})
		task := k.issue(IssueInput{})
		k.selected(task.ID, choose(existing(w.ID), 0, "key"))
		run := k.run(task.ID)
		var closed Workspace
		errs := together(
			func() error {
				_, _, err := k.ApplySelection(t.Context(), runPrincipal(run), task.ID, run.ID)
				return err
			},
			func() (err error) {
				closed, err = k.UpdateWorkspace(t.Context(), k.operator, w.ID, WorkspacePatch{Status: ptr("archived")})
				return err
			},
		)
		if errs[1] != nil {
			t.Fatal(errs[1])
		}
		bound := must(k.GetIssue(t.Context(), k.operator, task.ID))(t)
		switch {
		case errs[0] == nil && bound.UpdatedAt.After(closed.UpdatedAt):
			t.Errorf("bound at %s to a workspace that was closed at %s", bound.UpdatedAt, closed.UpdatedAt)
		case errs[0] != nil:
			wantRefusal(t, "the choice", errs[0], ErrPendingSelectionStale)
		}
	}
}
