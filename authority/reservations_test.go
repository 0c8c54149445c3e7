package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
)

// attempt is a reservation that a test arranged to be refused.
type attempt struct {
	name    string
	want    *Refusal
	arrange func(s *scene) (worker, func(*ReserveInput))
}

// asking is an arrangement on a free workspace, of which only the request is special.
func asking(change func(s *scene, in *ReserveInput)) func(*scene) (worker, func(*ReserveInput)) {
	return func(s *scene) (worker, func(*ReserveInput)) {
		return s.worker(s.boundTask(s.free())), func(in *ReserveInput) { change(s, in) }
	}
}

// on is an arrangement in which a run asks for the workspace that was prepared.
func on(prepare func(s *scene) uuid.UUID) func(*scene) (worker, func(*ReserveInput)) {
	return func(s *scene) (worker, func(*ReserveInput)) {
		return s.worker(s.boundTask(prepare(s))), nothingElse
	}
}

func nothingElse(*ReserveInput) {}

var refusedForWhatIsNamed = []attempt{
	{"unknown task", ErrIssueNotFound, asking(func(_ *scene, in *ReserveInput) { in.IssueID = uuid.New() })},
	{"another company's task", ErrIssueNotFound, asking(func(s *scene, in *ReserveInput) { in.IssueID = s.elsewhere().task() })},
	{"a task private to another agent", ErrIssueNotFound, func(s *scene) (worker, func(*ReserveInput)) {
		return s.worker(s.task("visibility", "private", "assignee_agent_id", s.newAgent())), nothingElse
	}},
	{"unknown run", ErrRunNotFound, asking(func(_ *scene, in *ReserveInput) { in.RunID = uuid.New() })},
	{"another company's run", ErrRunNotFound, asking(func(s *scene, in *ReserveInput) {
		other := s.elsewhere()
		in.RunID = other.worker(other.task()).RunID
	})},
	{"unknown agent", ErrAgentNotFound, asking(func(_ *scene, in *ReserveInput) { in.AgentID = new(uuid.New()) })},
	{"another company's agent", ErrAgentNotFound, asking(func(s *scene, in *ReserveInput) { in.AgentID = &s.elsewhere().agent })},
	{"archived environment", ErrEnvironmentNotFound, asking(func(s *scene, in *ReserveInput) {
		in.EnvironmentID = new(s.insert("environments", "name", "Old", "driver", "ssh", "status", "archived"))
	})},
	{"another company's project", ErrProjectNotFound, asking(func(s *scene, in *ReserveInput) {
		in.ProjectID = new(s.insert("projects", "company_id", s.elsewhere().company, "name", "Theirs"))
	})},
	{"a private project's source", ErrProjectWorkspaceNotFound, asking(func(s *scene, in *ReserveInput) {
		project := s.insert("projects", "company_id", s.company, "name", "Closed", "visibility", "private")
		in.ProjectWorkspaceID = new(s.insert("project_workspaces",
			"company_id", s.company, "project_id", project, "name", "Source", "source_type", "empty"))
	})},
	{"the run ended", ErrRunIdentity, func(s *scene) (worker, func(*ReserveInput)) {
		w := s.worker(s.boundTask(s.free()))
		s.end(w, "failed")
		return w, nothingElse
	}},
	{"another run of the same task", ErrRunIdentity, func(s *scene) (worker, func(*ReserveInput)) {
		w := s.worker(s.boundTask(s.free()))
		other := s.worker(w.task)
		return w, func(in *ReserveInput) { in.RunID = other.RunID }
	}},
	{"another agent of the company", ErrRunIdentity, asking(func(s *scene, in *ReserveInput) { in.AgentID = new(s.newAgent()) })},
	{"another task", ErrRunIdentity, asking(func(s *scene, in *ReserveInput) { in.IssueID = s.task() })},
	{"unknown workspace", ErrWorkspaceMissing, asking(func(_ *scene, in *ReserveInput) { in.ExistingWorkspaceID = new(uuid.New()) })},
	{"another company's workspace", ErrWorkspaceMissing, asking(func(s *scene, in *ReserveInput) {
		in.ExistingWorkspaceID = new(s.elsewhere().free())
	})},
	{"a workspace that is neither bound nor readable", ErrWorkspaceMissing, asking(func(s *scene, in *ReserveInput) {
		in.ExistingWorkspaceID = new(s.free())
		s.boundTask(*in.ExistingWorkspaceID, "visibility", "private", "assignee_agent_id", s.newAgent())
	})},
	{"a task that is bound to another workspace", ErrBinding, asking(func(s *scene, in *ReserveInput) {
		in.ExistingWorkspaceID = new(s.free())
	})},
	{"a task that is bound to none", ErrBinding, func(s *scene) (worker, func(*ReserveInput)) {
		workspace := s.free()
		return s.worker(s.task()), func(in *ReserveInput) { in.ExistingWorkspaceID = &workspace }
	}},
}

var refusedForTheWorkspace = []attempt{
	{"a private task behind the workspace", ErrWorkspaceAccess, on(func(s *scene) uuid.UUID {
		workspace := s.free()
		s.boundTask(workspace, "visibility", "private", "assignee_agent_id", s.newAgent())
		return workspace
	})},
	{"a private task that was bound once", ErrWorkspaceAccess, on(func(s *scene) uuid.UUID {
		workspace := s.free()
		once := s.boundTask(workspace, "visibility", "private", "assignee_agent_id", s.newAgent())
		s.exec("UPDATE issues SET execution_workspace_id = NULL WHERE id = $1", once)
		return workspace
	})},
	{"a private project", ErrWorkspaceAccess, on(func(s *scene) uuid.UUID {
		project := s.insert("projects", "company_id", s.company, "name", "Closed", "visibility", "private")
		return s.imported(WorkspaceInput{ProjectID: &project})
	})},
	{"archived", ErrOwnershipChanged, on(func(s *scene) uuid.UUID {
		return s.imported(WorkspaceInput{Status: "archived", Authority: &AuthorityImport{Epoch: 3}})
	})},
	{"cleanup failed", ErrOwnershipChanged, on(func(s *scene) uuid.UUID {
		return s.imported(WorkspaceInput{Status: "cleanup_failed", Authority: &AuthorityImport{Epoch: 3}})
	})},
	{"another source", ErrSourceMismatch, asking(func(_ *scene, in *ReserveInput) {
		in.Source = json.RawMessage(`{"kind": "git", "url": "https://example.org/x"}`)
	})},
	{"an older epoch", ErrStaleEpoch, asking(func(_ *scene, in *ReserveInput) { in.ExpectedEpoch = new(int64(2)) })},
	{"a later epoch", ErrStaleEpoch, asking(func(_ *scene, in *ReserveInput) { in.ExpectedEpoch = new(int64(4)) })},
	{"the run holds another", ErrRunHoldsWorkspace, func(s *scene) (worker, func(*ReserveInput)) {
		w, _ := s.writer(s.free())
		s.exec("UPDATE issues SET execution_workspace_id = $2 WHERE id = $1", w.task, s.free())
		return w, nothingElse
	}},
	{"the run holds another, and the task has none", ErrRunHoldsWorkspace, func(s *scene) (worker, func(*ReserveInput)) {
		w, _ := s.writer(s.free())
		s.exec("UPDATE issues SET execution_workspace_id = NULL WHERE id = $1", w.task)
		return w, nothingElse
	}},
	{"the last epoch is used", ErrEpochExhausted, on(func(s *scene) uuid.UUID {
		return s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: maximumEpoch}})
	})},
	{"a running writer", ErrWriterPending, on(func(s *scene) uuid.UUID {
		workspace := s.free()
		s.writer(workspace)
		return workspace
	})},
	{"a writer that ended with unsaved work", ErrWriterPending, on(func(s *scene) uuid.UUID {
		workspace := s.free()
		w, fence := s.writer(workspace)
		s.dirty(w, fence)
		s.stop(w)
		s.end(w, "failed")
		return workspace
	})},
	{"a writer that ended without any machine", ErrWriterPending, on(func(s *scene) uuid.UUID {
		workspace := s.free()
		w, _ := s.writer(workspace)
		s.end(w, "succeeded")
		return workspace
	})},
	{"no workspace, and a source that cannot be fetched", ErrSourceUnsupported, func(s *scene) (worker, func(*ReserveInput)) {
		return s.worker(s.task()), func(in *ReserveInput) { in.Source = json.RawMessage(`{"kind": "git"}`) }
	}},
	{"no workspace, and an epoch expected", ErrStaleEpoch, func(s *scene) (worker, func(*ReserveInput)) {
		return s.worker(s.task()), func(in *ReserveInput) { in.ExpectedEpoch = new(int64(3)) }
	}},
}

func TestARefusedReservationLeavesEveryWorkspaceAsItWas(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, a := range append(refusedForWhatIsNamed, refusedForTheWorkspace...) {
		w, change := a.arrange(s)
		in := ReserveInput{IssueID: w.task, RunID: w.RunID}
		change(&in)
		before := s.everything()
		_, err := s.Reserve(t.Context(), w.Principal, in, Once{})
		s.wantCode(a.name, err, a.want)
		if after := s.everything(); after != before {
			t.Errorf("%s: a refusal changed a workspace or a tenure:\n%s\n%s", a.name, before, after)
		}
	}
}

func TestExplainSaysWhatReserveAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, a := range append(refusedForWhatIsNamed, refusedForTheWorkspace...) {
		w, change := a.arrange(s)
		in := ReserveInput{IssueID: w.task, RunID: w.RunID}
		change(&in)
		before, events := s.everything(), s.count("SELECT count(*) FROM events")
		explained, err := s.Explain(t.Context(), w.Principal, in)
		s.wantNoError(a.name, err)
		if explained.Reservable || explained.Code == nil || *explained.Code != a.want.Code {
			t.Errorf("%s: explained as %+v, want %s", a.name, explained, a.want.Code)
		}
		if explained.NextActions == nil {
			t.Errorf("%s: nextActions is null", a.name)
		}
		if s.everything() != before || s.count("SELECT count(*) FROM events") != events {
			t.Errorf("%s: an explanation left something behind", a.name)
		}
	}
	w := s.worker(s.boundTask(s.free()))
	explained, err := s.Explain(t.Context(), w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID})
	if err != nil || !explained.Reservable || explained.Code != nil {
		t.Errorf("a free workspace is explained as %+v, %v", explained, err)
	}
}

// everything is all workspaces and tenures that there are, every column.
func (s *scene) everything() string {
	s.t.Helper()
	return s.text(`SELECT (SELECT jsonb_agg(to_jsonb(w) ORDER BY w.id) FROM execution_workspaces w)::text
		|| (SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY t.id), '[]') FROM tenures t)::text`)
}

func (s *scene) dirty(w worker, f Fence) {
	s.t.Helper()
	_, err := s.MarkDirty(s.t.Context(), w.Principal, f)
	s.wantNoError("mark dirty", err)
}

func TestAReservationChangesTheEpochAndTheWriterAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, mode := range workspaceModes {
		workspace := s.imported(WorkspaceInput{Mode: mode, Authority: &AuthorityImport{
			Epoch: 3, SnapshotID: new(uuid.New()), Location: json.RawMessage(`{"path": "/x"}`), Source: json.RawMessage(`{"kind": "git"}`),
		}})
		others := func() string {
			return s.text("SELECT (to_jsonb(w) - 'epoch' - 'writer_run_id')::text FROM execution_workspaces w WHERE id = $1", workspace)
		}
		w := s.worker(s.boundTask(workspace))
		before := others()
		got, err := s.reserve(w, func(in *ReserveInput) { in.ExistingWorkspaceID = &workspace })
		s.wantNoError(mode, err)
		a := got.Workspace.Authority
		if got.Workspace.ID != workspace || a.Epoch != 4 || a.WriterRunID == nil || *a.WriterRunID != w.RunID || got.Replayed || got.Handover != nil {
			t.Errorf("%s: reserved as %+v", mode, got)
		}
		if after := others(); after != before {
			t.Errorf("%s: a reservation changed more than two fields:\n%s\n%s", mode, before, after)
		}
		row := s.row(workspace)
		again, err := s.reserve(w)
		s.wantNoError(mode, err)
		if !again.Replayed || again.Workspace.Authority.Epoch != 4 || s.row(workspace) != row {
			t.Errorf("%s: the same run again got %+v, and the row is %s", mode, again, s.row(workspace))
		}
	}
}

func TestAReservationAsksLittleOfTheTask(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	parent := s.boundTask(workspace, "status", "done")
	project := s.insert("projects", "company_id", s.company, "name", "Another")
	w := s.worker(s.boundTask(workspace, "parent_id", parent, "project_id", project))
	other := s.worker(parent)
	s.exec("UPDATE issues SET execution_run_id = $2, checkout_run_id = $2 WHERE id = $1", w.task, other.RunID)
	if f := s.mustReserve(w); f.Epoch != 4 {
		t.Errorf("reserved at epoch %d, want 4", f.Epoch)
	}
}

func TestAReleasedWorkspaceIsFreeWhileTheOldRunGoesOn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	first, fence := s.writer(workspace)
	_, err := s.Release(t.Context(), first.Principal, fence, false)
	s.wantNoError("release", err)
	if _, next := s.writer(workspace); next.Epoch != fence.Epoch+1 {
		t.Errorf("the next writer has epoch %d, want %d", next.Epoch, fence.Epoch+1)
	}
	if status := s.text("SELECT status FROM heartbeat_runs WHERE id = $1", first.RunID); status != "running" {
		t.Errorf("the old run is %s", status)
	}
}

func TestAPendingWriterIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	_, err := s.Renew(t.Context(), holder.Principal, fence)
	s.wantNoError("renew", err)
	_, err = s.reserve(s.worker(s.boundTask(workspace)))
	told, _ := s.wantCode("a live writer", err, ErrWriterPending).(WriterPending)
	if h := told.Holder; told.State != "writer_running" || h == nil || h.RunID != holder.RunID || h.Epoch != fence.Epoch ||
		h.IssueID == nil || *h.IssueID != holder.task || h.RunStatus != "running" || h.LastRenewedAt == nil || h.Since.IsZero() {
		t.Errorf("a live writer is told as %+v, holder %+v", told, told.Holder)
	}
}

func TestOnlyTheFirstRefusalOfAKindIsAnEvent(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	s.writer(workspace)
	w := s.worker(s.boundTask(workspace))
	for range 5 {
		_, err := s.reserve(w)
		s.wantCode("a live writer", err, ErrWriterPending)
	}
	events := s.count("SELECT count(*) FROM events WHERE kind = 'reservation.refused' AND run_id = $1", w.RunID)
	counted := s.count("SELECT sum(count) FROM refusals WHERE run_id = $1 AND code = $2", w.RunID, ErrWriterPending.Code)
	if events != 1 || counted != 5 {
		t.Errorf("five refusals are %d events and counted as %d, want 1 and 5", events, counted)
	}
}
