package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// bindingOf is the part of a task that inheritance decides.
type bindingOf struct {
	Project, Source, Workspace string
	Preference, Mode           string
	Revision                   int64
}

// names tells ids by the names that a test gives them.
type names map[uuid.UUID]string

func (n names) of(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return n[*id]
}

func (n names) binding(t *testing.T, issue Issue) bindingOf {
	t.Helper()
	b := bindingOf{
		Project: n.of(issue.ProjectID), Source: n.of(issue.ProjectWorkspaceID), Workspace: n.of(issue.ExecutionWorkspaceID),
		Revision: issue.WorkspaceBindingRevision,
	}
	if issue.ExecutionWorkspacePreference != nil {
		b.Preference = *issue.ExecutionWorkspacePreference
	}
	if issue.ExecutionWorkspaceSettings != nil {
		var settings struct{ Mode string }
		if err := json.Unmarshal(issue.ExecutionWorkspaceSettings, &settings); err != nil {
			t.Fatal(err)
		}
		b.Mode = settings.Mode
	}
	return b
}

// family is a bound parent in a project with two sources, with other workspaces beside it.
type family struct {
	*kit
	names
	project, oldest, primary uuid.UUID
	otherProject             uuid.UUID
	workspace, spare         Workspace // of the source primary, and of none
	parent                   Issue
}

func newFamily(t *testing.T, mode string) *family {
	t.Helper()
	f := &family{kit: newKit(t)}
	f.project = f.kit.project(f.home, ProjectInput{})
	f.oldest = f.source(f.project, ProjectWorkspaceInput{})
	f.primary = f.source(f.project, ProjectWorkspaceInput{IsPrimary: true})
	f.otherProject = f.kit.project(f.home, ProjectInput{})
	f.workspace = f.kit.workspace(WorkspaceInput{Mode: mode, ProjectID: &f.project, ProjectWorkspaceID: &f.oldest})
	f.spare = f.kit.workspace(WorkspaceInput{})
	f.parent = f.change(f.issue(IssueInput{ProjectID: &f.project}).ID, IssuePatch{ExecutionWorkspaceID: To(f.workspace.ID)})
	f.names = names{
		f.project: "project", f.oldest: "oldest", f.primary: "primary", f.otherProject: "other project",
		f.workspace.ID: "workspace", f.spare.ID: "spare",
	}
	return f
}

func TestAChildTakesItsParentsProjectSourceAndWorkspace(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"isolated_workspace", "operator_branch", "shared_workspace"} {
		for _, isolated := range []bool{false, true} {
			f := newFamily(t, mode)
			if isolated {
				f.isolate()
			}
			for _, status := range []string{"todo", "done", "cancelled"} {
				f.change(f.parent.ID, IssuePatch{Status: &status})
				got := f.binding(t, f.issue(IssueInput{ParentID: &f.parent.ID}))
				want := bindingOf{Project: "project", Source: "oldest", Workspace: "workspace", Preference: "reuse_existing", Mode: mode}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("mode %s, isolated %v, parent %s (-want +got):\n%s", mode, isolated, status, diff)
				}
			}
		}
	}
}

func TestWhatATaskInherits(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	f.isolate()
	unbound := f.issue(IssueInput{ProjectID: &f.project, ProjectWorkspaceID: &f.oldest})
	elsewhere := f.bound(f.spare.ID)
	inherited := bindingOf{Project: "project", Source: "oldest", Workspace: "workspace", Preference: "reuse_existing", Mode: "shared_workspace"}
	for what, c := range map[string]struct {
		in   IssueInput
		want bindingOf
	}{
		"from its parent":               {IssueInput{ParentID: &f.parent.ID}, inherited},
		"from its parent, same project": {IssueInput{ParentID: &f.parent.ID, ProjectID: &f.project}, inherited},
		"the workspace decides the source": {
			IssueInput{ParentID: &f.parent.ID, ProjectWorkspaceID: &f.primary}, inherited,
		},
		"nothing from a parent of another project": {
			IssueInput{ParentID: &f.parent.ID, ProjectID: &f.otherProject}, bindingOf{Project: "other project"},
		},
		"the source of a parent without a workspace": {
			IssueInput{ParentID: &unbound.ID}, bindingOf{Project: "project", Source: "oldest"},
		},
		"from another task than its parent": {
			IssueInput{ParentID: &elsewhere.ID, InheritExecutionWorkspaceFromIssueID: &f.parent.ID}, inherited,
		},
		"from another task, without a parent": {
			IssueInput{InheritExecutionWorkspaceFromIssueID: &f.parent.ID}, inherited,
		},
		"a workspace without a source": {
			IssueInput{ParentID: &elsewhere.ID}, bindingOf{Workspace: "spare", Preference: "reuse_existing", Mode: "isolated_workspace"},
		},
		"no workspace when it opts out": {
			IssueInput{ParentID: &f.parent.ID, InheritWorkspace: ptr(false)}, bindingOf{Project: "project", Source: "primary"},
		},
		"an explicit workspace wins, and its null source": {
			IssueInput{ParentID: &f.parent.ID, ExecutionWorkspaceID: &f.spare.ID},
			bindingOf{Project: "project", Workspace: "spare", Preference: "reuse_existing", Mode: "isolated_workspace"},
		},
		"an explicit preference wins": {
			IssueInput{ParentID: &f.parent.ID, ExecutionWorkspacePreference: ptr("isolated_workspace")},
			bindingOf{Project: "project", Source: "oldest", Preference: "isolated_workspace"},
		},
		"explicit settings win": {
			IssueInput{ParentID: &f.parent.ID, ExecutionWorkspaceSettings: json.RawMessage(`{"mode": "operator_branch"}`)},
			bindingOf{Project: "project", Source: "oldest", Mode: "operator_branch"},
		},
		"nothing without a parent or a project": {IssueInput{}, bindingOf{}},
		"its project's primary source":          {IssueInput{ProjectID: &f.project}, bindingOf{Project: "project", Source: "primary"}},
		"no source of a project without any":    {IssueInput{ProjectID: &f.otherProject}, bindingOf{Project: "other project"}},
	} {
		if diff := cmp.Diff(c.want, f.binding(t, f.issue(c.in))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestExplicitWorkspacesAreIgnoredWhereTheInstanceDoesNotIsolate(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	for what, id := range map[string]uuid.UUID{"a workspace": f.spare.ID, "an unknown workspace": uuid.New()} {
		issue := f.issue(IssueInput{
			ParentID: &f.parent.ID, ExecutionWorkspaceID: &id, ExecutionWorkspacePreference: ptr("isolated_workspace"),
			ExecutionWorkspaceSettings: json.RawMessage(`{"mode": "operator_branch"}`),
		})
		want := bindingOf{Project: "project", Source: "oldest", Workspace: "workspace", Preference: "reuse_existing", Mode: "shared_workspace"}
		if diff := cmp.Diff(want, f.binding(t, issue)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestAProjectsPolicyNamesTheDefaultSource(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	foreign := f.source(f.otherProject, ProjectWorkspaceInput{})
	for what, c := range map[string]struct{ policy, want string }{
		"one of its sources":      {`{"defaultProjectWorkspaceId": "` + f.oldest.String() + `"}`, "oldest"},
		"another project's":       {`{"defaultProjectWorkspaceId": "` + foreign.String() + `"}`, "primary"},
		"nothing that is an id":   {`{"defaultProjectWorkspaceId": "the main one"}`, "primary"},
		"nothing that is a text":  {`{"defaultProjectWorkspaceId": [1]}`, "primary"},
		"nothing about a default": {`{"enabled": true}`, "primary"},
	} {
		policy := json.RawMessage(c.policy)
		must(f.UpdateProject(t.Context(), f.operator, f.project, ProjectPatch{ExecutionWorkspacePolicy: To(policy)}))(t)
		if got := f.of(f.issue(IssueInput{ProjectID: &f.project}).ProjectWorkspaceID); got != c.want {
			t.Errorf("the policy names %s: the source is %q, want %s", what, got, c.want)
		}
	}
	only := f.kit.project(f.home, ProjectInput{})
	first, _ := f.source(only, ProjectWorkspaceInput{}), f.source(only, ProjectWorkspaceInput{})
	if got := f.issue(IssueInput{ProjectID: &only}).ProjectWorkspaceID; !sameID(got, &first) {
		t.Errorf("without policy and primary the source is %v, want the oldest, %s", got, first)
	}
}

func TestInheritedSettingsKeepWhatWasSetBesideTheMode(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	f.isolate()
	issue := f.issue(IssueInput{ExecutionWorkspaceID: &f.workspace.ID, ExecutionWorkspaceSettings: json.RawMessage(`{"mode": "x", "keep": [1]}`)})
	var settings map[string]any
	if err := json.Unmarshal(issue.ExecutionWorkspaceSettings, &settings); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"mode": "shared_workspace", "keep": []any{1.0}}, settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestASourceOfAnotherProjectIsNotTheTasks(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	_, err := f.CreateIssue(t.Context(), f.operator, f.home,
		IssueInput{Title: "Task", ProjectID: &f.otherProject, ProjectWorkspaceID: &f.oldest}, Once{})
	wantRefusal(t, "a source of another project", err, ErrProjectWorkspaceNotFound)
}

func TestAChildOfAWorkspaceThatItsMakerCannotReadOptsOut(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "shared_workspace")
	member := f.user(f.home, "member", "active")
	f.bound(f.workspace.ID)
	f.change(f.bound(f.workspace.ID).ID, IssuePatch{Visibility: ptr("private")}) // a private task behind the workspace
	in := IssueInput{Title: "Task", ParentID: &f.parent.ID}
	_, err := f.CreateIssue(t.Context(), member, f.home, in, Once{})
	wantRefusal(t, "inheriting a hidden workspace", err, ErrWorkspaceNotFound)
	in.InheritWorkspace = ptr(false)
	child := must(f.CreateIssue(t.Context(), member, f.home, in, Once{}))(t)
	if child.ExecutionWorkspaceID != nil {
		t.Errorf("the child is bound to %v", child.ExecutionWorkspaceID)
	}
}
