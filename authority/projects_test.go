package authority

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestAProjectsPolicyIsKeptAsItCame(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	policy := json.RawMessage(`{"x": {"y": [1, 2.5, null]}, "enabled": true, "defaultMode": "isolated_workspace"}`)
	project := d.project(company, ProjectInput{ExecutionWorkspacePolicy: policy})
	same := func(what string, want string, got Project) {
		t.Helper()
		var a, b any
		if got.ExecutionWorkspacePolicy == nil {
			got.ExecutionWorkspacePolicy = json.RawMessage("null")
		}
		if err := errors.Join(json.Unmarshal([]byte(want), &a), json.Unmarshal(got.ExecutionWorkspacePolicy, &b)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s: the policy changed (-want +got):\n%s", what, diff)
		}
	}
	same("made", string(policy), must(d.GetProject(t.Context(), d.operator, project))(t))

	name := "Renamed"
	same("renamed", string(policy), must(d.UpdateProject(t.Context(), d.operator, project, ProjectPatch{Name: &name}))(t))
	same("changed", `{"z": 1}`, must(d.UpdateProject(t.Context(), d.operator, project,
		ProjectPatch{ExecutionWorkspacePolicy: To(json.RawMessage(`{"z": 1}`))}))(t))
	gone := must(d.UpdateProject(t.Context(), d.operator, project, ProjectPatch{ExecutionWorkspacePolicy: ToNull[json.RawMessage]()}))(t)
	if gone.ExecutionWorkspacePolicy != nil || gone.Name != name {
		t.Errorf("after null the project is %+v", gone)
	}
}

func TestAPolicyThatIsNoObjectIsRefused(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	project := d.project(company, ProjectInput{})
	empty := ""
	for _, policy := range []string{`[]`, `"protected"`, `7`, `{`, `true`} {
		_, err := d.CreateProject(t.Context(), d.operator, company,
			ProjectInput{Name: "P", ExecutionWorkspacePolicy: json.RawMessage(policy)}, Once{})
		wantField(t, policy, err, "body.executionWorkspacePolicy")
		_, err = d.UpdateProject(t.Context(), d.operator, project,
			ProjectPatch{ExecutionWorkspacePolicy: To(json.RawMessage(policy))})
		wantField(t, policy, err, "body.executionWorkspacePolicy")
	}
	_, err := d.CreateProject(t.Context(), d.operator, company, ProjectInput{Visibility: "secret"}, Once{})
	wantField(t, "no name, unknown visibility", err, "body.name", "body.visibility")
	_, err = d.UpdateProject(t.Context(), d.operator, project, ProjectPatch{Name: &empty, Visibility: &empty})
	wantField(t, "empty changes", err, "body.name", "body.visibility")
}

func TestTheNewestPrimarySourceIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	project := d.project(d.company(), ProjectInput{})
	failures := make([]error, 8)
	var calls sync.WaitGroup
	for i := range failures {
		calls.Go(func() {
			_, failures[i] = d.AddProjectWorkspace(t.Context(), d.operator, project,
				ProjectWorkspaceInput{Name: "S", SourceType: "empty", IsPrimary: true}, Once{})
		})
	}
	calls.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	last := must(d.AddProjectWorkspace(t.Context(), d.operator, project,
		ProjectWorkspaceInput{Name: "S", SourceType: "empty", IsPrimary: true}, Once{}))(t)
	must(d.AddProjectWorkspace(t.Context(), d.operator, project, ProjectWorkspaceInput{Name: "S", SourceType: "empty"}, Once{}))(t)
	var primaries []uuid.UUID
	list := must(d.ListProjectWorkspaces(t.Context(), d.operator, project, Page{}))(t)
	for _, source := range list.Items {
		if source.IsPrimary {
			primaries = append(primaries, source.ID)
		}
	}
	if len(list.Items) != 10 || len(primaries) != 1 || primaries[0] != last.ID {
		t.Errorf("of %d sources the primary ones are %v, want %s", len(list.Items), primaries, last.ID)
	}
}

func TestASourceSaysWhereItsFilesAre(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	project := d.project(d.company(), ProjectInput{})
	path, url, ref, empty := "/srv/files", "https://git.example/a.git", "main", ""
	for what, c := range map[string]struct {
		in    ProjectWorkspaceInput
		wrong []string
	}{
		"local path":             {ProjectWorkspaceInput{SourceType: "local_path", Cwd: &path}, nil},
		"repository":             {ProjectWorkspaceInput{SourceType: "git_repo", RepoURL: &url, RepoRef: &ref}, nil},
		"clone":                  {ProjectWorkspaceInput{SourceType: "git_repo", Cwd: &path}, nil},
		"managed elsewhere":      {ProjectWorkspaceInput{SourceType: "remote_managed"}, nil},
		"empty":                  {ProjectWorkspaceInput{SourceType: "empty"}, nil},
		"local path without one": {ProjectWorkspaceInput{SourceType: "local_path"}, []string{"body.cwd"}},
		"other path without one": {ProjectWorkspaceInput{SourceType: "non_git_path", RepoURL: &url}, []string{"body.cwd"}},
		"repository nowhere":     {ProjectWorkspaceInput{SourceType: "git_repo", RepoRef: &ref}, []string{"body.repoUrl"}},
		"unknown":                {ProjectWorkspaceInput{SourceType: "ftp"}, []string{"body.sourceType"}},
		"none":                   {ProjectWorkspaceInput{}, []string{"body.sourceType"}},
		"blank texts": {
			ProjectWorkspaceInput{SourceType: "empty", Cwd: &empty, RepoURL: &empty, RepoRef: &empty},
			[]string{"body.cwd", "body.repoUrl", "body.repoRef"},
		},
	} {
		c.in.Name = "Source"
		source, err := d.AddProjectWorkspace(t.Context(), d.operator, project, c.in, Once{})
		if c.wrong != nil {
			wantField(t, what, err, c.wrong...)
			continue
		}
		got := ProjectWorkspaceInput{
			Name: source.Name, SourceType: source.SourceType, Cwd: source.Cwd,
			RepoURL: source.RepoURL, RepoRef: source.RepoRef, IsPrimary: source.IsPrimary,
		}
		if diff := cmp.Diff(c.in, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-given +kept):\n%s", what, err, diff)
		}
	}
}

func TestAProjectMemberIsAddedOnce(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	project := d.project(company, ProjectInput{Visibility: "private"})
	agent := PrincipalRef{Type: "agent", ID: d.agent(company)}
	answers := make([]ProjectMember, 8)
	failures := make([]error, len(answers))
	var calls sync.WaitGroup
	for i := range answers {
		calls.Go(func() { answers[i], failures[i] = d.AddProjectMember(t.Context(), d.operator, project, agent) })
	}
	calls.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	list := must(d.ListProjectMembers(t.Context(), d.operator, project, Page{}))(t)
	if len(list.Items) != 1 {
		t.Fatalf("%d members are listed, want 1", len(list.Items))
	}
	for _, answer := range answers {
		if diff := cmp.Diff(list.Items[0], answer); diff != "" {
			t.Errorf("an answer is not the member that is listed:\n%s", diff)
		}
	}
	for what, member := range map[string]PrincipalRef{
		"foreign": {Type: "agent", ID: d.agent(d.company())}, "unknown": {Type: "agent", ID: uuid.New()},
	} {
		_, err := d.AddProjectMember(t.Context(), d.operator, project, member)
		wantRefusal(t, what, err, ErrAgentNotFound)
	}
	_, err := d.AddProjectMember(t.Context(), d.operator, project, PrincipalRef{Type: "robot"})
	wantField(t, "nobody", err, "body.principalType", "body.principalId")
}
