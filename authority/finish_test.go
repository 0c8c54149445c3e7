package authority

import (
	"testing"
)

func (s *scene) finish(by Principal, w worker, in FinishInput) (Run, error) {
	return s.FinishRun(s.t.Context(), by, w.RunID, in)
}

func TestARunThatEndsItselfReleasesACleanWorkspace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, status := range terminalStatuses {
		workspace := s.free()
		w, fence := s.writer(workspace)
		run, err := s.finish(w.Principal, w, FinishInput{Status: status})
		s.wantNoError(status, err)
		if run.Status != status || run.FinishedAt == nil || run.FinishedBy == nil || *run.FinishedBy != w.Actor() {
			t.Errorf("%s: the run is %+v", status, run)
		}
		ended := s.text("SELECT concat_ws(' ', ended_how, ended_by, unsaved_work) FROM tenures WHERE workspace_id = $1", workspace)
		if ended != "finish "+w.Actor()+" f" {
			t.Errorf("%s: the tenure keeps %q", status, ended)
		}
		if _, next := s.writer(workspace); next.Epoch != fence.Epoch+1 {
			t.Errorf("%s: the next writer has epoch %d", status, next.Epoch)
		}
	}
}

func TestARunDoesNotEndItselfOverUnsavedWorkUnknowingly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.dirty(w, fence)
	before := s.everything()
	_, err := s.finish(w.Principal, w, FinishInput{Status: "succeeded"})
	s.wantCode("finish dirty", err, ErrWorkspaceDirty)
	if status := s.text("SELECT status FROM heartbeat_runs WHERE id = $1", w.RunID); status != "running" || s.everything() != before {
		t.Errorf("after the refusal the run is %s", status)
	}
	_, err = s.finish(w.Principal, w, FinishInput{Status: "failed", Discard: true})
	s.wantNoError("finish with discard", err)
	ended := s.text(`SELECT concat_ws(' ', t.ended_how, t.unsaved_work, e.data ->> 'unsavedWork')
		FROM tenures t JOIN events e ON e.workspace_id = t.workspace_id AND e.kind = 'tenure.ended' WHERE t.workspace_id = $1`, workspace)
	if ended != "finish t true" {
		t.Errorf("tenure and event keep %q, want the unsaved work", ended)
	}
}

func TestARunThatOthersEndStaysTheWriter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	before := s.everything()
	_, err := s.finish(s.operator, w, FinishInput{Status: "failed", Discard: true})
	s.wantNoError("finish", err)
	if s.everything() != before {
		t.Error("marking a run as ended changed its workspace")
	}
	_, err = s.Renew(t.Context(), w.Principal, fence)
	told, _ := s.wantCode("the run's own writes", err, ErrTenureEnded).(TenureEnding)
	if told.How != "run_failed" || told.By != s.operator.Actor() {
		t.Errorf("the run is told %+v", told)
	}
	_, err = s.reserve(s.worker(s.boundTask(workspace)))
	pending, _ := s.wantCode("the next", err, ErrWriterPending).(WriterPending)
	if pending.State != "writer_ended_unproven" || pending.Holder == nil || pending.Holder.RunStatus != "failed" {
		t.Errorf("the next is told %+v", pending)
	}
	if _, err := s.finish(w.Principal, w, FinishInput{Status: "failed"}); err != nil || s.everything() != before {
		t.Errorf("the run says so as well: %v", err)
	}
}

func TestATerminalStatusIsFinal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.task())
	s.end(w, "cancelled")
	s.end(w, "cancelled")
	for _, status := range []string{"succeeded", "running"} {
		_, err := s.finish(s.operator, w, FinishInput{Status: status})
		s.wantCode(status, err, ErrRunFinal)
	}
	_, err := s.finish(s.operator, w, FinishInput{Status: "done"})
	s.wantCode("a status that there is not", err, ErrValidation)
}

func TestAWaitingRunStartsOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.task())
	w.RunID = s.insert("heartbeat_runs", "company_id", s.company, "agent_id", s.agent, "issue_id", w.task, "status", "queued")
	first, err := s.finish(s.operator, w, FinishInput{Status: "running"})
	s.wantNoError("start", err)
	again, err := s.finish(s.operator, w, FinishInput{Status: "running"})
	s.wantNoError("start again", err)
	if first.StartedAt == nil || again.StartedAt == nil || !first.StartedAt.Equal(*again.StartedAt) {
		t.Errorf("started at %v and %v", first.StartedAt, again.StartedAt)
	}
}

func TestOnlyTheRunItsOperatorsAndMembersEndIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, colleague := s.worker(s.task()), s.worker(s.task())
	_, err := s.finish(colleague.Principal, w, FinishInput{Status: "failed"})
	s.wantCode("another run", err, ErrNotAllowed)
	other := s.elsewhere()
	_, err = s.finish(other.worker(other.task()).Principal, w, FinishInput{Status: "failed"})
	s.wantCode("another company's run", err, ErrRunNotFound)
}
