package authority

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
)

var acceptingRisk = TakeoverInput{Reason: "the machine burnt down", AcceptRisk: true}

func TestATakeoverWithoutProofNeedsTheRiskAccepted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	lease := s.lease(w)
	_, err := s.SetLocation(t.Context(), w.Principal, fence, json.RawMessage(`{"host": "a"}`))
	s.wantNoError("set the location", err)
	s.dirty(w, fence)
	before := s.everything()
	_, err = s.Takeover(t.Context(), s.operator, workspace, TakeoverInput{Reason: "it hangs"})
	needs, _ := s.wantCode("without proof", err, ErrTakeoverNeedsProof).(TakeoverProof)
	if len(needs.MissingProof) != 1 || needs.MissingProof[0] != (MissingProof{lease, "cloud", "lease_active"}) {
		t.Errorf("the missing proof is %+v", needs)
	}
	if s.everything() != before {
		t.Error("the refused takeover changed something")
	}

	freed, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantNoError("take over", err)
	if a := freed.Authority; a.Epoch != fence.Epoch+1 || a.WriterRunID != nil || a.Dirty || a.Location != nil {
		t.Errorf("after the takeover the authority is %+v", a)
	}
	_, err = s.Renew(t.Context(), w.Principal, fence)
	ended, _ := s.wantCode("the old writer", err, ErrTenureEnded).(TenureEnding)
	if ended.How != "takeover" || ended.By != s.operator.Actor() || ended.Reason == nil || *ended.Reason != acceptingRisk.Reason {
		t.Errorf("the old writer is told %+v", ended)
	}
}

func TestTheNextWriterIsToldOfATakeoverAndTheOneAfterIsNot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, c := range []struct {
		name  string
		dirty bool
		stop  bool
	}{{"unproven and dirty", true, false}, {"proven and clean", false, true}, {"proven and dirty", true, true}} {
		workspace := s.free()
		w, fence := s.writer(workspace)
		if c.dirty {
			s.dirty(w, fence)
		}
		in := acceptingRisk
		if c.stop {
			s.stop(w)
			in.AcceptRisk = false
		}
		_, err := s.Takeover(t.Context(), s.operator, workspace, in)
		s.wantNoError(c.name, err)
		next := s.worker(s.boundTask(workspace))
		got, err := s.reserve(next)
		s.wantNoError(c.name, err)
		want := Handover{Kind: "takeover", FromRunID: w.RunID, FromEpoch: fence.Epoch, Unproven: !c.stop, UnsavedWork: c.dirty}
		if got.Handover == nil || *got.Handover != want || got.Workspace.Authority.Epoch != fence.Epoch+2 {
			t.Errorf("%s: the next reservation is %+v, handover %+v; want %+v", c.name, got, got.Handover, want)
		}
		_, err = s.Release(t.Context(), next.Principal, Fence{workspace, next.RunID, fence.Epoch + 2}, false)
		s.wantNoError("release", err)
		if last, err := s.reserve(s.worker(s.boundTask(workspace))); err != nil || last.Handover != nil {
			t.Errorf("%s: the one after is told of %+v, %v", c.name, last.Handover, err)
		}
	}
}

func TestATakeoverIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.dirty(w, fence)
	_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantNoError("take over", err)
	record := s.text(`SELECT concat_ws(' ', ended_how, ended_by, ended_reason, unsaved_work, unproven) FROM tenures WHERE workspace_id = $1`, workspace)
	if want := "takeover " + s.operator.Actor() + " " + acceptingRisk.Reason + " t t"; record != want {
		t.Errorf("the tenure keeps %q, want %q", record, want)
	}
	events, err := s.ListEvents(t.Context(), s.operator, workspace, Page{})
	s.wantNoError("list the events", err)
	kinds := map[string]int{}
	for _, e := range events.Items {
		kinds[e.Kind]++
	}
	if kinds["workspace.taken_over"] != 1 || kinds["tenure.ended"] != 1 {
		t.Errorf("the events are %v", kinds)
	}
}

func TestATakeoverIsForOperatorsWithAReasonOverAWriter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantCode("without a writer", err, ErrNoWriter)
	w, _ := s.writer(workspace)
	_, err = s.Takeover(t.Context(), s.operator, workspace, TakeoverInput{Reason: " ", AcceptRisk: true})
	s.wantCode("without a reason", err, ErrValidation)
	_, err = s.Takeover(t.Context(), w.Principal, workspace, acceptingRisk)
	s.wantCode("by the writer", err, ErrNotAllowed)
	_, err = s.Takeover(t.Context(), Principal{Role: RoleAuditor, TokenID: uuid.New()}, workspace, acceptingRisk)
	s.wantCode("by an auditor", err, ErrNotAllowed)
	other := s.elsewhere()
	_, err = s.Takeover(t.Context(), other.worker(other.task()).Principal, workspace, acceptingRisk)
	s.wantCode("from another company", err, ErrWorkspaceNotFound)
	_, err = s.Takeover(t.Context(), s.operator, uuid.New(), acceptingRisk)
	s.wantCode("of an unknown workspace", err, ErrWorkspaceNotFound)
}

func TestTheLastEpochIsReleasedAndNotTakenOver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: maximumEpoch - 1}})
	w, fence := s.writer(workspace)
	if fence.Epoch != maximumEpoch {
		t.Fatalf("reserved at epoch %d", fence.Epoch)
	}
	_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantCode("take over", err, ErrEpochExhausted)
	_, err = s.Release(t.Context(), w.Principal, fence, false)
	s.wantNoError("release", err)
	_, err = s.reserve(s.worker(s.boundTask(workspace)))
	s.wantCode("reserve", err, ErrEpochExhausted)
}

// Whatever the old holder was in the middle of, its next call tells it that it is out, by whom, when and why. Its
// run may still end: that claims nothing of the workspace.
func TestAfterATakeoverEachCallOfTheOldHolderIsToldHowItEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.dirty(w, fence)
	begun := s.begin(w, fence, "content", s.snapshotOf(workspace))
	uploaded := s.begin(w, fence, "content", s.snapshotOf(workspace))
	s.upload(w, fence, uploaded, "content")
	_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
	s.wantNoError("take over", err)
	s.writer(workspace) // and somebody else is the writer by now
	late := append([]fencedWrite{
		{"upload", func(s *scene, by Principal, f Fence) error {
			_, err := s.UploadSnapshot(s.t.Context(), by, f.WorkspaceID, begun, strings.NewReader("content"))
			return err
		}},
		{"commit what is uploaded", func(s *scene, by Principal, f Fence) error {
			_, err := s.CommitSnapshot(s.t.Context(), by, f, uploaded)
			return err
		}},
		{"commit what is not", func(s *scene, by Principal, f Fence) error {
			_, err := s.CommitSnapshot(s.t.Context(), by, f, begun)
			return err
		}},
	}, fencedWrites...)
	snapshots := s.count("SELECT count(*) FROM snapshots WHERE workspace_id = $1", workspace)
	before := s.everything()
	for _, call := range late {
		told, _ := s.wantCode(call.name, call.do(s, w.Principal, fence), ErrTenureEnded).(TenureEnding)
		if told.How != "takeover" || told.By != s.operator.Actor() || told.EndedAt.IsZero() || told.Reason == nil || *told.Reason != acceptingRisk.Reason {
			t.Errorf("%s: the old holder is told %+v", call.name, told)
		}
	}
	if s.everything() != before || s.count("SELECT count(*) FROM snapshots WHERE workspace_id = $1", workspace) != snapshots {
		t.Error("a late call changed something")
	}
	run, err := s.finish(w.Principal, w, FinishInput{Status: "interrupted"})
	if err != nil || run.Status != "interrupted" || s.everything() != before {
		t.Errorf("the old holder's run ends as %s, %v", run.Status, err)
	}
}
