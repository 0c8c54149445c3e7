package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"berth/snapshot"
)

func TestATaskWithoutAWorkspaceGetsOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	project := s.insert("projects", "company_id", s.company, "name", "Project")
	source := s.insert("project_workspaces", "company_id", s.company, "project_id", project, "name", "Source", "source_type", "empty")
	w := s.worker(s.task("project_id", project, "project_workspace_id", source))
	got, err := s.reserve(w, func(in *ReserveInput) { in.EnvironmentID, in.AgentID = &s.environment, &s.agent })
	s.wantNoError("reserve", err)

	made := got.Workspace
	if made.Mode != "isolated_workspace" || made.StrategyType != "task_directory" || made.ProviderType != "cloud_sandbox" ||
		made.SourceIssueID == nil || *made.SourceIssueID != w.task ||
		made.ProjectID == nil || *made.ProjectID != project || made.ProjectWorkspaceID == nil || *made.ProjectWorkspaceID != source {
		t.Errorf("the workspace is %+v", made)
	}
	a := made.Authority
	if a.Epoch != 1 || a.WriterRunID == nil || *a.WriterRunID != w.RunID || a.Dirty || got.Replayed || got.Handover != nil ||
		!sameDocument(a.Source, json.RawMessage(`{"kind": "empty"}`)) || a.Location != nil {
		t.Errorf("its authority is %+v", a)
	}
	bound := s.text("SELECT execution_workspace_id || '@' || workspace_binding_revision FROM issues WHERE id = $1", w.task)
	if bound != made.ID.String()+"@1" {
		t.Errorf("the task is bound to %s, want %s at revision 1", bound, made.ID)
	}
	content, saved, err := s.OpenSnapshot(t.Context(), w.Principal, made.ID, *a.SnapshotID)
	s.wantNoError("open the first snapshot", err)
	defer content.Close()
	if _, empty := snapshot.Empty(); saved.State != "committed" || saved.Epoch != 0 || *saved.SHA256 != empty.SHA256 {
		t.Errorf("the first snapshot is %+v, want an empty tree, committed at epoch 0", saved)
	}
	again, err := s.reserve(w)
	s.wantNoError("again", err)
	if !again.Replayed || again.Workspace.ID != made.ID || again.Workspace.Authority.Epoch != 1 {
		t.Errorf("the same run again got %+v", again)
	}
}

func TestOfEightAtOnceOneMakesTheWorkspaceOfATask(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 12)
	for range 8 {
		task := s.task()
		var workers []worker
		for range 8 {
			workers = append(workers, s.worker(task))
		}
		granted := 0
		for _, r := range race(t, len(workers), func(i int) (Reservation, error) { return s.reserve(workers[i]) }) {
			if r.err == nil {
				granted++
				continue
			}
			s.wantCode("a loser", r.err, ErrWriterPending)
		}
		made := s.count("SELECT count(*) FROM execution_workspaces WHERE source_issue_id = $1", task)
		tenures := s.count("SELECT count(*) FROM tenures WHERE issue_id = $1", task)
		if granted != 1 || made != 1 || tenures != 1 {
			t.Errorf("%d were granted, %d workspaces made, %d tenures begun; want 1 of each", granted, made, tenures)
		}
	}
}

func TestANewWorkspaceIsNotMadeForAnAgentThatMayNotReadTheTask(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	closed := s.insert("projects", "company_id", s.company, "name", "Closed", "visibility", "private")
	for name, task := range map[string]uuid.UUID{
		"private to another agent": s.task("visibility", "private", "assignee_agent_id", s.newAgent()),
		"of a private project":     s.task("project_id", closed),
	} {
		w := s.worker(task)
		_, err := s.Reserve(t.Context(), s.operator, ReserveInput{IssueID: task, RunID: w.RunID}, Once{})
		s.wantCode(name, err, ErrWorkspaceAccess)
		if n := s.count("SELECT count(*) FROM execution_workspaces WHERE source_issue_id = $1", task); n != 0 {
			t.Errorf("%s: %d workspaces were made", name, n)
		}
	}
	w := s.worker(s.task())
	_, err := s.Reserve(t.Context(), s.operator, ReserveInput{IssueID: w.task, RunID: w.RunID, ProjectID: &closed}, Once{})
	s.wantCode("in a private project", err, ErrWorkspaceAccess)
}
