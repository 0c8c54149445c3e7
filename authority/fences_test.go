package authority

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
)

// fencedWrite is one of the writes that claim to be the writer's.
type fencedWrite struct {
	name string
	do   func(s *scene, by Principal, f Fence) error
}

var fencedWrites = []fencedWrite{
	{"renew", func(s *scene, by Principal, f Fence) error {
		_, err := s.Renew(s.t.Context(), by, f)
		return err
	}},
	{"dirty", func(s *scene, by Principal, f Fence) error {
		_, err := s.MarkDirty(s.t.Context(), by, f)
		return err
	}},
	{"location", func(s *scene, by Principal, f Fence) error {
		_, err := s.SetLocation(s.t.Context(), by, f, json.RawMessage(`{"path": "/x"}`))
		return err
	}},
	{"begin a save", func(s *scene, by Principal, f Fence) error {
		_, err := s.CreateSnapshot(s.t.Context(), by, f, SnapshotInput{SHA256: hexDigest("x"), Size: 1, ParentSnapshotID: new(uuid.New())})
		return err
	}},
	{"release", func(s *scene, by Principal, f Fence) error {
		_, err := s.Release(s.t.Context(), by, f, true)
		return err
	}},
}

// wantRefusedWrites tries every fenced write, and wants each refused with nothing changed. It
// returns the details of the last.
func (s *scene) wantRefusedWrites(what string, by Principal, f Fence, want *Refusal) any {
	s.t.Helper()
	var details any
	for _, write := range fencedWrites {
		before := s.everything()
		details = s.wantCode(what+": "+write.name, write.do(s, by, f), want)
		if s.everything() != before {
			s.t.Errorf("%s: a refused %s changed something", what, write.name)
		}
	}
	return details
}

func TestKnowingTheEpochIsNotBeingTheWriter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, fence := s.writer(s.free())
	other := s.worker(w.task)
	s.wantRefusedWrites("another run of the task", other.Principal, fence, ErrRunIdentity)
	s.wantRefusedWrites("an operator", s.operator, fence, ErrRunIdentity)
	s.wantRefusedWrites("another run in its own name", other.Principal, Fence{fence.WorkspaceID, other.RunID, fence.Epoch}, ErrStaleEpoch)
}

func TestAnotherEpochIsStale(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, fence := s.writer(s.free())
	for _, epoch := range []int64{0, fence.Epoch - 1, fence.Epoch + 1, maximumEpoch, -1} {
		s.wantRefusedWrites("another epoch", w.Principal, Fence{fence.WorkspaceID, w.RunID, epoch}, ErrStaleEpoch)
	}
}

func TestARunThatEndedIsToldOfAnotherEpochAsWell(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, fence := s.writer(s.free())
	s.end(w, "failed")
	s.wantRefusedWrites("its own epoch", w.Principal, fence, ErrTenureEnded)
	s.wantRefusedWrites("another epoch", w.Principal, Fence{fence.WorkspaceID, w.RunID, fence.Epoch - 1}, ErrStaleEpoch)
}

func TestAWriterThatIsNotRunningYetWritesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.task())
	w.RunID = s.insert("heartbeat_runs", "company_id", s.company, "agent_id", s.agent, "issue_id", w.task, "status", "queued")
	workspace := s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: 3, WriterRunID: &w.RunID}})
	fence := Fence{workspace, w.RunID, 3}
	s.wantRefusedWrites("queued", w.Principal, fence, ErrRunIdentity)
	_, err := s.finish(s.operator, w, FinishInput{Status: "running"})
	s.wantNoError("start", err)
	_, err = s.Renew(t.Context(), w.Principal, fence)
	s.wantNoError("renew once it runs", err)
}

func TestAWorkspaceThatIsNotReadableDoesNotExistForAFence(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.task())
	s.wantRefusedWrites("unknown", w.Principal, Fence{uuid.New(), w.RunID, 1}, ErrWorkspaceNotFound)
	s.wantRefusedWrites("another company's", w.Principal, Fence{s.elsewhere().free(), w.RunID, 3}, ErrWorkspaceNotFound)
}

func TestTheWritesOfAnEndedTenureAreToldItsEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for how, end := range map[string]func(worker, Fence) string{
		"release": func(w worker, f Fence) string {
			_, err := s.Release(t.Context(), w.Principal, f, false)
			s.wantNoError("release", err)
			return w.Actor()
		},
		"finish": func(w worker, _ Fence) string {
			_, err := s.finish(w.Principal, w, FinishInput{Status: "succeeded"})
			s.wantNoError("finish", err)
			return w.Actor()
		},
		"takeover": func(_ worker, f Fence) string {
			_, err := s.Takeover(t.Context(), s.operator, f.WorkspaceID, acceptingRisk)
			s.wantNoError("take over", err)
			return s.operator.Actor()
		},
		"handover": func(w worker, f Fence) string {
			s.stop(w)
			s.end(w, "failed")
			next, _ := s.writer(f.WorkspaceID)
			return next.Actor()
		},
		"run_timed_out": func(w worker, _ Fence) string {
			s.end(w, "timed_out")
			return s.operator.Actor()
		},
	} {
		w, fence := s.writer(s.free())
		by := end(w, fence)
		told, _ := s.wantRefusedWrites(how, w.Principal, fence, ErrTenureEnded).(TenureEnding)
		if told.How != how || told.By != by || told.EndedAt.IsZero() || (how == "takeover") != (told.Reason != nil) {
			t.Errorf("after a %s by %s the writer is told %+v", how, by, told)
		}
	}
}

// It lost the right when a task behind the files became private; the work is still its own.
func TestAHolderThatMayNotReadAnyMoreStillWritesAndReleases(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.boundTask(workspace, "visibility", "private", "assignee_agent_id", s.newAgent())
	_, err := s.reserve(w)
	s.wantCode("reserve again", err, ErrWorkspaceAccess)
	saved := s.save(w, fence, "content", s.snapshotOf(workspace))
	if current := s.snapshotOf(workspace); current != saved {
		t.Errorf("saved %s, and the workspace names %s", saved, current)
	}
	for _, write := range fencedWrites {
		if write.name != "begin a save" { // which was just done
			s.wantNoError(write.name, write.do(s, w.Principal, fence))
		}
	}
}

func TestARenewalRecordsItsTimeAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, fence := s.writer(s.free())
	w.TokenIssuedAt = time.Now()
	before := s.everything()
	first, err := s.Renew(t.Context(), w.Principal, fence)
	s.wantNoError("renew", err)
	second, err := s.Renew(t.Context(), w.Principal, fence)
	s.wantNoError("renew again", err)
	if !second.LastRenewedAt.After(first.LastRenewedAt) || first.Token != nil || first.StopRequested != nil {
		t.Errorf("renewed as %+v and %+v", first, second)
	}
	if s.everything() != before {
		t.Error("a renewal changed the workspace or the tenure")
	}
	w.TokenIssuedAt = time.Now().Add(-13 * time.Hour)
	late, err := s.Renew(t.Context(), w.Principal, fence)
	s.wantNoError("renew with an old token", err)
	if late.Token == nil || late.TokenExpiresAt == nil {
		t.Fatalf("an old token is not replaced: %+v", late)
	}
	if again, err := s.Authenticate(t.Context(), *late.Token); err != nil || again.RunID != w.RunID {
		t.Errorf("the new token is %+v, %v", again, err)
	}
}

func TestAReleaseKeepsUnsavedWorkUnlessItIsDiscarded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	_, err := s.SetLocation(t.Context(), w.Principal, fence, json.RawMessage(`{"path": "/x"}`))
	s.wantNoError("set the location", err)
	s.dirty(w, fence)
	before := s.everything()
	_, err = s.Release(t.Context(), w.Principal, fence, false)
	s.wantCode("release dirty", err, ErrWorkspaceDirty)
	if s.everything() != before {
		t.Error("the refused release changed something")
	}
	freed, err := s.Release(t.Context(), w.Principal, fence, true)
	s.wantNoError("discard", err)
	if a := freed.Authority; a.WriterRunID != nil || a.Dirty || a.Location != nil || a.Epoch != fence.Epoch {
		t.Errorf("after the release the authority is %+v", a)
	}
	if unsaved := s.text("SELECT unsaved_work::text FROM tenures WHERE workspace_id = $1", workspace); unsaved != "true" {
		t.Errorf("the tenure keeps unsaved_work = %s", unsaved)
	}
}

func TestNobodyClosesAWorkspaceThatHasAWriter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	before := s.everything()
	for _, status := range []string{"archived", "cleanup_failed"} {
		_, err := s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: &status})
		s.wantCode(status, err, ErrWorkspaceInUse)
	}
	if s.everything() != before {
		t.Error("a refused closing changed something")
	}
	_, err := s.Release(t.Context(), w.Principal, fence, false)
	s.wantNoError("release", err)
	closed, err := s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: new("archived")})
	s.wantNoError("close", err)
	opened, err := s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: new("active")})
	s.wantNoError("reopen", err)
	if closed.LifecycleGeneration != 1 || opened.LifecycleGeneration != 2 || opened.Authority.Epoch != fence.Epoch {
		t.Errorf("closed as %+v, reopened as %+v", closed, opened)
	}
	if _, next := s.writer(workspace); next.Epoch != fence.Epoch+1 {
		t.Errorf("after reopening the writer has epoch %d", next.Epoch)
	}
}
