package authority

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

// ended is a writer whose run ended with unsaved work, on a machine that is proven stopped or not.
func (s *scene) ended(proven bool) (workspace uuid.UUID, w worker, fence Fence) {
	s.t.Helper()
	workspace = s.free()
	w, fence = s.writer(workspace)
	s.dirty(w, fence)
	if proven {
		s.stop(w)
	} else {
		s.lease(w)
	}
	s.end(w, "failed")
	return workspace, w, fence
}

// recovery is a principal that may save in the name of the fence's writer.
func (s *scene) recovery(fence Fence) worker {
	s.t.Helper()
	_, secret, err := s.CreateRecoveryToken(s.t.Context(), s.operator, fence.WorkspaceID, RecoveryInput{Epoch: fence.Epoch}, Once{})
	s.wantNoError("open a recovery", err)
	by, err := s.Authenticate(s.t.Context(), secret)
	s.wantNoError("authenticate a recovery", err)
	return worker{Principal: by}
}

func TestARecoverySavesInTheNameOfTheEndedWriterAndThenAHandoverWorks(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(*scene, Fence) worker{
		"by its token":   func(s *scene, f Fence) worker { return s.recovery(f) },
		"by an operator": func(s *scene, _ Fence) worker { return worker{Principal: s.operator} },
	} {
		s := newScene(t)
		workspace, w, fence := s.ended(true)
		next := s.worker(s.boundTask(workspace))
		_, err := s.reserve(next)
		if pending, _ := s.wantCode(name+": reserve before", err, ErrWriterPending).(WriterPending); pending.State != "writer_ended_dirty" {
			t.Errorf("%s: before the recovery the next is told %s", name, pending.State)
		}
		recoverer := by(s, fence)
		saved := s.save(recoverer, fence, "what was left", s.snapshotOf(workspace))
		truth := s.text(`SELECT concat_ws(' ', w.dirty, w.epoch, w.writer_run_id, s.run_id, s.epoch, s.created_by)
			FROM execution_workspaces w JOIN snapshots s ON s.id = w.snapshot_id WHERE w.id = $1 AND s.id = $2`, workspace, saved)
		if want := s.text("SELECT concat_ws(' ', false, $1::bigint, $2::uuid, $2::uuid, $1::bigint, $3::text)", fence.Epoch, w.RunID, recoverer.Actor()); truth != want {
			t.Errorf("%s: after the recovery the workspace is %q, want %q", name, truth, want)
		}
		if kinds := s.kinds(workspace); kinds["workspace.recovered"] != 1 {
			t.Errorf("%s: the events are %v", name, kinds)
		}
		s.wantRefusedWrites(name+": the dead run itself", w.Principal, fence, ErrTenureEnded)
		got, err := s.reserve(next)
		s.wantNoError(name+": reserve after", err)
		if want := (Handover{Kind: "proof", FromRunID: w.RunID, FromEpoch: fence.Epoch}); got.Handover == nil || *got.Handover != want ||
			*got.Workspace.Authority.SnapshotID != saved {
			t.Errorf("%s: the next gets %+v after %+v", name, got.Workspace.Authority, got.Handover)
		}
		s.wantSoundHistory()
	}
}

func TestRecoveryNeedsProofThatTheWriterStopped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, w, fence := s.ended(false)
	saving := SnapshotInput{SHA256: hexDigest("x"), Size: 1, FileCount: 1, ParentSnapshotID: new(s.snapshotOf(workspace))}
	wantMissing := func(what string, err error) {
		t.Helper()
		needs, _ := s.wantCode(what, err, ErrRecoveryNeedsStop).(RecoveryProof)
		if needs.RunID != w.RunID || needs.RunStatus != "failed" || len(needs.MissingProof) != 1 || needs.MissingProof[0].Reason != "lease_active" {
			t.Errorf("%s: what is missing is %+v", what, needs)
		}
	}
	before := s.everything()
	_, _, err := s.CreateRecoveryToken(t.Context(), s.operator, workspace, RecoveryInput{Epoch: fence.Epoch}, Once{})
	wantMissing("a token", err)
	_, err = s.CreateSnapshot(t.Context(), s.operator, fence, saving)
	wantMissing("an operator's save", err)
	if s.everything() != before {
		t.Error("a refused recovery changed something")
	}

	token, secret, err := s.CreateRecoveryToken(t.Context(), s.operator, workspace,
		RecoveryInput{Epoch: fence.Epoch, AcceptRisk: true, Reason: new("the host burnt down")}, Once{})
	s.wantNoError("a token at a risk", err)
	by, err := s.Authenticate(t.Context(), secret)
	s.wantNoError("authenticate", err)
	s.save(worker{Principal: by}, fence, "one", s.snapshotOf(workspace))
	s.save(worker{Principal: s.operator.AcceptingRisk(true)}, fence, "two", s.snapshotOf(workspace))
	record := s.text(`SELECT string_agg(concat_ws(' ', kind, data ->> 'riskAccepted', data -> 'missingProof' -> 0 ->> 'reason', data ->> 'reason'), ', ' ORDER BY id)
		FROM events WHERE kind LIKE '%recover%' AND workspace_id = $1`, workspace)
	if want := "recovery.opened true lease_active the host burnt down, workspace.recovered true lease_active, workspace.recovered true lease_active"; record != want || !token.RiskAccepted {
		t.Errorf("the history keeps %q", record)
	}
	// The work is saved, and still nobody gets in on a guess.
	_, err = s.reserve(s.worker(s.boundTask(workspace)))
	if pending, _ := s.wantCode("the next", err, ErrWriterPending).(WriterPending); pending.State != "writer_ended_unproven" {
		t.Errorf("the next is told %s", pending.State)
	}
}

func TestAMachineThatIsFoundAfterATokenWasGivenBlocksItAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, w, fence := s.ended(true)
	by := s.recovery(fence)
	id := s.begin(by, fence, "content", s.snapshotOf(workspace))
	s.upload(by, fence, id, "content")
	s.lease(w)
	_, err := s.CommitSnapshot(t.Context(), by.Principal, fence, id)
	s.wantCode("commit", err, ErrRecoveryNeedsStop)
}

func TestTheWorkOfARunningWriterIsItsOwn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.dirty(w, fence)
	parent := s.snapshotOf(workspace)
	for _, c := range []struct{ proven, risk bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		risk := c.risk
		if c.proven {
			s.stop(w)
		}
		_, _, err := s.CreateRecoveryToken(t.Context(), s.operator, workspace, RecoveryInput{Epoch: fence.Epoch, AcceptRisk: risk}, Once{})
		needs, _ := s.wantCode("a token", err, ErrRecoveryNeedsStop).(RecoveryProof)
		if refused, _ := AsRefusal(err); needs.RunStatus != "running" || !strings.Contains(refused.Detail, "finish it") {
			t.Errorf("the operator is told %v, %+v", err, needs)
		}
		_, err = s.CreateSnapshot(t.Context(), s.operator.AcceptingRisk(risk), fence, SnapshotInput{SHA256: hexDigest("x"), Size: 1, ParentSnapshotID: &parent})
		s.wantCode("an operator's save", err, ErrRunIdentity)
	}
	id := s.begin(w, fence, "content", parent)
	_, err := s.UploadSnapshot(t.Context(), s.operator, workspace, id, strings.NewReader("content"))
	s.wantCode("an operator's upload", err, ErrRunIdentity)
	s.upload(w, fence, id, "content")
	_, err = s.CommitSnapshot(t.Context(), s.operator, fence, id)
	s.wantCode("an operator's commit", err, ErrRunIdentity)
}

func TestOnlyTheCurrentEpochsWriterIsRecovered(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	open := func(workspace uuid.UUID, epoch int64) error {
		_, _, err := s.CreateRecoveryToken(t.Context(), s.operator, workspace, RecoveryInput{Epoch: epoch}, Once{})
		return err
	}
	s.wantCode("without a writer", open(s.free(), 3), ErrNoWriter)
	workspace, w, fence := s.ended(true)
	s.wantCode("another epoch", open(workspace, fence.Epoch+1), ErrStaleEpoch)
	s.wantCode("an epoch before", open(workspace, fence.Epoch-1), ErrStaleEpoch)
	_, _, err := s.CreateRecoveryToken(t.Context(), w.Principal, workspace, RecoveryInput{Epoch: fence.Epoch}, Once{})
	s.wantCode("by the dead run", err, ErrWorkspaceNotFound)
	colleague := s.worker(w.task)
	_, _, err = s.CreateRecoveryToken(t.Context(), colleague.Principal, workspace, RecoveryInput{Epoch: fence.Epoch}, Once{})
	s.wantCode("by another run", err, ErrNotAllowed)

	by := s.recovery(fence)
	parent := s.snapshotOf(workspace)
	saved := s.save(by, fence, "content", parent)
	_, err = s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantNoError("take over", err)
	told, _ := s.wantCode("a token for the ended tenure", open(workspace, fence.Epoch), ErrTenureEnded).(TenureEnding)
	if told.How != "takeover" || told.Reason == nil {
		t.Errorf("the operator is told %+v", told)
	}
	_, err = s.CreateSnapshot(t.Context(), by.Principal, fence, SnapshotInput{SHA256: hexDigest("x"), Size: 1, ParentSnapshotID: &saved})
	s.wantCode("save late", err, ErrTenureEnded)
	_, err = s.GetWorkspace(t.Context(), by.Principal, workspace)
	s.wantCode("read late", err, ErrTenureEnded)
	_, _, err = s.OpenSnapshot(t.Context(), by.Principal, workspace, saved)
	s.wantCode("download late", err, ErrTenureEnded)
	if again, err := s.CommitSnapshot(t.Context(), by.Principal, fence, saved); err != nil || again.ID != saved {
		t.Errorf("a commit whose answer was lost is answered %+v, %v", again, err)
	}
}

func TestARecoveryTokenIsForOneTenureAndItsWorkspace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, w, fence := s.ended(true)
	other, otherWriter, otherFence := s.ended(true)
	by := s.recovery(fence)
	for name, f := range map[string]Fence{
		"another workspace": {other, w.RunID, fence.Epoch},
		"another run":       {workspace, otherWriter.RunID, fence.Epoch},
		"another epoch":     {workspace, w.RunID, fence.Epoch + 1},
		"another tenure":    otherFence,
	} {
		s.wantRefusedWrites(name, by.Principal, f, ErrRunIdentity)
	}
	for _, write := range fencedWrites {
		if write.name != "begin a save" {
			s.wantCode(write.name, write.do(s, by.Principal, fence), ErrRunIdentity)
		}
	}
	if _, err := s.GetWorkspace(t.Context(), by.Principal, workspace); err != nil {
		t.Errorf("its own workspace: %v", err)
	}
	_, err := s.GetWorkspace(t.Context(), by.Principal, other)
	s.wantCode("another workspace", err, ErrWorkspaceNotFound)
	if list, err := s.ListSnapshots(t.Context(), by.Principal, workspace, Page{}); err != nil || len(list.Items) == 0 {
		t.Errorf("its snapshots are %+v, %v", list, err)
	}
	_, err = s.ListSnapshots(t.Context(), by.Principal, other, Page{})
	s.wantCode("another workspace's snapshots", err, ErrWorkspaceNotFound)
}

func TestARecoveryTokenIsGoodForADay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, _, fence := s.ended(true)
	token, secret, err := s.CreateRecoveryToken(t.Context(), s.operator, workspace, RecoveryInput{Epoch: fence.Epoch}, Once{Key: "key", Digest: []byte("d")})
	s.wantNoError("open a recovery", err)
	if life := token.ExpiresAt.Sub(token.CreatedAt); life.Hours() < 23.9 || life.Hours() > 24.1 {
		t.Errorf("it lives for %v", life)
	}
	again, none, err := s.CreateRecoveryToken(t.Context(), s.operator, workspace, RecoveryInput{Epoch: fence.Epoch}, Once{Key: "key", Digest: []byte("d")})
	if err != nil || again.ID != token.ID || none != "" {
		t.Errorf("a replay is answered %+v, %q, %v", again, none, err)
	}
	if stored := s.count("SELECT count(*) FROM recovery_tokens r WHERE to_jsonb(r)::text LIKE '%' || $1 || '%'", secret); stored != 0 {
		t.Error("the secret is stored")
	}
	_, err = s.Authenticate(t.Context(), secret+"x")
	s.wantCode("another secret", err, ErrUnauthenticated)
	s.exec(`INSERT INTO recovery_tokens (id, company_id, workspace_id, epoch, run_id, secret_hash, risk_accepted, created_by, expires_at)
		SELECT gen_random_uuid(), company_id, workspace_id, epoch, run_id, sha256('berth_recovery_old'), false, 'test', clock_timestamp() - interval '1 second'
		FROM recovery_tokens WHERE id = $1`, token.ID)
	_, err = s.Authenticate(t.Context(), "berth_recovery_old")
	s.wantCode("an expired one", err, ErrUnauthenticated)
}

func TestOfTwoRecoveriesAtOnceOneWinsAndNothingIsLost(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for range 20 {
		workspace, _, fence := s.ended(true)
		parent := s.snapshotOf(workspace)
		recoverers := []worker{s.recovery(fence), s.recovery(fence)}
		var begun [2]uuid.UUID
		for i, by := range recoverers {
			begun[i] = s.begin(by, fence, "content", parent)
			s.upload(by, fence, begun[i], "content")
		}
		winners := 0
		for i, r := range race(t, 2, func(i int) (Snapshot, error) {
			return s.CommitSnapshot(t.Context(), recoverers[i].Principal, fence, begun[i])
		}) {
			if r.err != nil {
				s.wantCode("the loser", r.err, ErrSnapshotSuperseded)
				continue
			}
			winners++
			if current := s.snapshotOf(workspace); current != begun[i] {
				t.Errorf("%s was committed, and %s is the saved state", begun[i], current)
			}
		}
		if winners != 1 {
			t.Errorf("%d recoveries won", winners)
		}
	}
	s.wantSoundHistory()
}

func TestARecoveryAndATakeoverAtOnceLeaveOneTruth(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for range 40 {
		workspace, _, fence := s.ended(true)
		parent := s.snapshotOf(workspace)
		by := s.recovery(fence)
		id := s.begin(by, fence, "content", parent)
		s.upload(by, fence, id, "content")
		calls := race(t, 2, func(i int) (any, error) {
			if i == 0 {
				return s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
			}
			return s.CommitSnapshot(t.Context(), by.Principal, fence, id)
		})
		s.wantNoError("take over", calls[0].err)
		saved, unsaved := parent, "t"
		if calls[1].err == nil {
			saved, unsaved = id, "f"
		} else {
			s.wantCode("recover after the takeover", calls[1].err, ErrTenureEnded)
		}
		truth := s.text("SELECT concat_ws(' ', w.snapshot_id, t.unsaved_work) FROM execution_workspaces w JOIN tenures t ON t.workspace_id = w.id WHERE w.id = $1", workspace)
		if want := saved.String() + " " + unsaved; truth != want {
			t.Errorf("the workspace and its tenure are %q, want %q", truth, want)
		}
	}
	s.wantSoundHistory()
}
