package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
)

func TestARollbackIsANewSnapshotThatFollowsTheCurrentOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.empty()
	w, f := s.writer(workspace)
	ids := s.savedTimes(w, f, 3)
	s.dirty(w, f)
	_, err := s.RollBack(t.Context(), w.Principal, f, ids[0])
	s.wantCode("with unsaved work", err, ErrWorkspaceDirty)
	current := s.save(w, f, "saved", ids[2])

	made, err := s.RollBack(t.Context(), w.Principal, f, ids[0])
	s.wantNoError("roll back", err)
	if made.ID == ids[0] || made.State != "committed" || made.ParentSnapshotID == nil || *made.ParentSnapshotID != current ||
		made.Epoch != f.Epoch || made.RunID == nil || *made.RunID != w.RunID {
		t.Errorf("the new snapshot is %+v", made)
	}
	if s.snapshotOf(workspace) != made.ID || s.content(workspace, made.ID) != "x" || s.content(workspace, current) != "saved" {
		t.Errorf("the workspace is at %s with %q", s.snapshotOf(workspace), s.content(workspace, made.ID))
	}
	after := s.save(w, f, "on", made.ID)
	if s.snapshotOf(workspace) != after {
		t.Error("a save does not follow the rollback")
	}
}

func TestOnlyTheWriterRollsBackAndOnlyToWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.empty()
	w, f := s.writer(workspace)
	ids := s.savedTimes(w, f, 2)
	before := s.row(workspace)
	other := s.worker(s.boundTask(workspace))
	for what, by := range map[string]Principal{"another run": other.Principal, "an operator": s.operator} {
		_, err := s.RollBack(t.Context(), by, f, ids[0])
		s.wantCode(what, err, ErrRunIdentity)
	}
	_, err := s.RollBack(t.Context(), w.Principal, Fence{WorkspaceID: workspace, RunID: w.RunID, Epoch: f.Epoch + 1}, ids[0])
	s.wantCode("another epoch", err, ErrStaleEpoch)
	_, err = s.RollBack(t.Context(), w.Principal, f, uuid.New())
	s.wantCode("an unknown snapshot", err, ErrSnapshotNotFound)
	gone := s.begin(w, f, "pending", ids[1])
	_, err = s.RollBack(t.Context(), w.Principal, f, gone)
	s.wantCode("a pending snapshot", err, ErrSnapshotUnavailable)
	s.wantNoError("lose the bytes", s.store.Delete(t.Context(), s.text("SELECT location_key FROM snapshots WHERE id = $1", ids[0])))
	_, err = s.RollBack(t.Context(), w.Principal, f, ids[0])
	s.wantCode("a snapshot whose bytes are lost", err, ErrSnapshotUnavailable)
	if after := s.row(workspace); after != before {
		t.Errorf("the workspace changed: %s", after)
	}
	_, err = s.Release(t.Context(), w.Principal, f, false)
	s.wantNoError("release", err)
	_, err = s.RollBack(t.Context(), w.Principal, f, ids[1])
	s.wantCode("after the release", err, ErrTenureEnded)
}

// A rollback reads the current snapshot, copies bytes, and then commits: a save that comes between must not be lost.
func TestARollbackAndASaveAtOnceLoseNeither(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	workspace := s.empty()
	w, f := s.writer(workspace)
	first := s.savedTimes(w, f, 1)[0]
	for round := range 25 {
		parent := s.snapshotOf(workspace)
		pending := s.begin(w, f, "saved", parent)
		s.upload(w, f, pending, "saved")
		outcomes := race(t, 2, func(i int) (Snapshot, error) {
			if i == 0 {
				return s.CommitSnapshot(t.Context(), w.Principal, f, pending)
			}
			return s.RollBack(t.Context(), w.Principal, f, first)
		})
		granted := 0
		current := s.snapshotOf(workspace)
		for i, o := range outcomes {
			wantKnown(t, "round", o.err)
			if o.err == nil {
				granted++
				if o.answer.ParentSnapshotID == nil || (*o.answer.ParentSnapshotID != parent && o.answer.ID != current) {
					t.Errorf("round %d: call %d follows %v", round, i, o.answer.ParentSnapshotID)
				}
			}
		}
		if granted == 0 || granted == 2 && outcomes[1].answer.ID != current {
			t.Errorf("round %d: %d granted, the workspace is at %s", round, granted, current)
		}
	}
}

func TestABranchBeginsWithItsOriginsSavedStateProjectAndPrivacy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	project := s.insert("projects", "company_id", s.company, "name", "Site")
	origin := s.imported(WorkspaceInput{ProjectID: &project})
	secret := s.task("visibility", "private", "assignee_agent_id", s.agent)
	s.exec("UPDATE issues SET execution_workspace_id = $1 WHERE id = $2", origin, secret)
	w := s.worker(secret)
	f := s.mustReserve(w)
	ids := s.savedTimes(w, f, 3)

	branch := func(by Principal, in WorkspaceInput) (Workspace, error) {
		in.Name = "Branch"
		return s.CreateWorkspace(t.Context(), by, s.company, in, Once{})
	}
	made, err := branch(s.operator, WorkspaceInput{From: &Branching{WorkspaceID: origin}})
	s.wantNoError("branch", err)
	if made.ProjectID == nil || *made.ProjectID != project || made.Authority.Epoch != 0 || made.Authority.WriterRunID != nil ||
		made.DerivedFromExecutionWorkspaceID == nil || *made.DerivedFromExecutionWorkspaceID != origin {
		t.Errorf("the branch is %+v", made)
	}
	if got := s.content(made.ID, *made.Authority.SnapshotID); got != "xxx" {
		t.Errorf("the branch begins with %q", got)
	}
	older, err := branch(s.operator, WorkspaceInput{From: &Branching{WorkspaceID: origin, SnapshotID: &ids[0]}})
	s.wantNoError("branch off an older one", err)
	if got := s.content(older.ID, *older.Authority.SnapshotID); got != "x" {
		t.Errorf("the branch begins with %q", got)
	}
	if n := s.count("SELECT count(*) FROM workspace_privacy_sources WHERE workspace_id = $1 AND issue_id = $2", made.ID, secret); n != 1 {
		t.Errorf("the branch does not remember the private task")
	}
	stranger := s.workerOf(s.newAgent(), s.task())
	if _, err := s.GetWorkspace(t.Context(), stranger.Principal, made.ID); err == nil {
		t.Error("who may not read the origin's task reads the branch")
	}
	// Its own life: a save there changes nothing at the origin.
	if s.snapshotOf(origin) != ids[2] {
		t.Error("the origin changed")
	}
}

func TestABranchNeedsAnOriginThatTheActorReadsAndThatIsThere(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.empty()
	w, f := s.writer(workspace)
	pending := s.begin(w, f, "pending", s.snapshotOf(workspace))
	unknown := uuid.New()
	foreign := s.elsewhere().empty()
	for what, c := range map[string]struct {
		from Branching
		want *Refusal
	}{
		"unknown":              {Branching{WorkspaceID: unknown}, ErrWorkspaceNotFound},
		"another company's":    {Branching{WorkspaceID: foreign}, ErrWorkspaceNotFound},
		"an unknown snapshot":  {Branching{WorkspaceID: workspace, SnapshotID: &unknown}, ErrSnapshotNotFound},
		"a pending snapshot":   {Branching{WorkspaceID: workspace, SnapshotID: &pending}, ErrSnapshotUnavailable},
		"imported, never here": {Branching{WorkspaceID: s.free()}, ErrSnapshotUnavailable},
	} {
		_, err := s.CreateWorkspace(t.Context(), s.operator, s.company, WorkspaceInput{Name: "Branch", From: &c.from}, Once{})
		s.wantCode(what, err, c.want)
	}
	project := uuid.New()
	_, err := s.CreateWorkspace(t.Context(), s.operator, s.company, WorkspaceInput{
		Name: "Branch", From: &Branching{WorkspaceID: workspace}, ProjectID: &project, Source: json.RawMessage(`{"kind": "empty"}`),
	}, Once{})
	s.wantCode("with a project of its own", err, ErrValidation)
}
