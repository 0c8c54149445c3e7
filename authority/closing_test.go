package authority

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// closers are all who can close a workspace, and as what.
func (w *world) closers() map[string]Principal {
	user := uuid.New()
	w.insert("company_memberships", "company_id", w.company, "principal_type", "user", "principal_id", user,
		"status", "active", "membership_role", "member")
	return map[string]Principal{
		"archived":       w.operator,
		"cleanup_failed": w.operator,
		"archived ":      {Role: RoleMember, TokenID: uuid.New(), UserID: user},
	}
}

// wantNotClosedInUse tries every way of closing on a workspace that has a writer or a line, and wants each refused with
// nothing changed.
func (w *world) wantNotClosedInUse(state string) {
	w.t.Helper()
	if strings.HasPrefix(state, "nobody") && !strings.Contains(state, "waiting!") {
		return
	}
	before := w.row(w.workspace)
	for as, by := range w.closers() {
		status := strings.TrimSpace(as)
		_, err := w.UpdateWorkspace(w.t.Context(), by, w.workspace, WorkspacePatch{Status: &status})
		w.wantCode(state+": close as "+status, err, ErrWorkspaceInUse)
	}
	if w.row(w.workspace) != before {
		w.t.Errorf("%s: a refused closing changed something", state)
	}
}

// Who had to do with a workspace before it was closed: its writer, what that was about to save, who recovers it, who
// asked it to stop, who waited.
func TestTheOldIdsOfAClosedWorkspaceDoNothingNorAfterItIsReopened(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, w, fence := s.ended(true)
	recoverer := s.recovery(fence)
	save := s.begin(recoverer, fence, "content", s.snapshotOf(workspace))
	s.upload(recoverer, fence, save, "content")
	asked := s.stopAt(workspace, -time.Second)
	waiter := s.worker(s.boundTask(workspace))
	s.gone(waiter)
	s.away(waiter, "2 minutes")
	_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantNoError("take over", err)

	status := func(to string) Workspace {
		changed, err := s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: &to})
		s.wantNoError(to, err)
		return changed
	}
	first := status("archived")
	wantDead := func(what string) {
		t.Helper()
		s.wantRefusedWrites(what+": the old writer", w.Principal, fence, ErrTenureEnded)
		before := s.row(workspace)
		_, err := s.CommitSnapshot(t.Context(), recoverer.Principal, fence, save)
		s.wantCode(what+": commit the old save by its recovery", err, ErrTenureEnded)
		_, err = s.CommitSnapshot(t.Context(), s.operator, fence, save)
		s.wantCode(what+": and by an operator", err, ErrTenureEnded)
		_, _, err = s.CreateRecoveryToken(t.Context(), s.operator, workspace, RecoveryInput{Epoch: fence.Epoch}, Once{})
		s.wantCode(what+": recover the old writer", err, ErrTenureEnded)
		_, err = s.RequestStop(t.Context(), s.operator, workspace, StopInput{Reason: "late", Deadline: time.Now()}, Once{})
		s.wantCode(what+": ask the old writer to stop", err, ErrNoWriter)
		_, err = s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
		s.wantCode(what+": take over from it", err, ErrNoWriter)
		s.due()
		s.enforce()
		if got := s.stopState(asked); got != "over" {
			t.Errorf("%s: what the old writer was asked is %s", what, got)
		}
		if s.row(workspace) != before {
			t.Errorf("%s: something changed", what)
		}
	}
	wantDead("archived")
	_, err = s.reserve(waiter, func(in *ReserveInput) { in.WaitSeconds = 60 })
	s.wantCode("wait for what is closed", err, ErrOwnershipChanged)
	if left := s.count("SELECT count(*) FROM waiting_line"); left != 0 {
		t.Errorf("%d wait for what is closed", left)
	}

	failed := status("cleanup_failed")
	wantDead("cleanup_failed")
	reopened := status("active")
	wantDead("reopened")
	if first.LifecycleGeneration != 1 || failed.LifecycleGeneration != 1 || reopened.LifecycleGeneration != 2 {
		t.Errorf("the generations are %d, %d and %d", first.LifecycleGeneration, failed.LifecycleGeneration, reopened.LifecycleGeneration)
	}
	if got := s.mustReserve(waiter); got.Epoch != fence.Epoch+2 {
		t.Errorf("after it is reopened the writer is at epoch %d, after %d and a takeover", got.Epoch, fence.Epoch)
	}
	s.wantSoundHistory()
}
