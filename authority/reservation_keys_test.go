package authority

import (
	"testing"

	"github.com/google/uuid"
)

// keyed asks for the task's workspace under a key; request stands for the body.
func (s *scene) keyed(w worker, key, request string) (Reservation, error) {
	return s.Reserve(s.t.Context(), w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID},
		Once{Key: key, Digest: []byte(request)})
}

func TestAKeyAnswersItsReservationWhileTheTenureLives(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.boundTask(s.free()))
	first, err := s.keyed(w, "key", "body")
	s.wantNoError("the first", err)
	again, err := s.keyed(w, "key", "body")
	s.wantNoError("the same again", err)
	if first.Replayed || !again.Replayed || again.Workspace.Authority.Epoch != first.Workspace.Authority.Epoch {
		t.Errorf("first %+v, again %+v", first, again)
	}
	_, err = s.keyed(w, "key", "another body")
	s.wantCode("another body", err, ErrIdempotencyKey)
}

func TestAKeyNeverBeginsASecondTenure(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.boundTask(s.free()))
	first, err := s.keyed(w, "key", "body")
	s.wantNoError("reserve", err)
	f := Fence{WorkspaceID: first.Workspace.ID, RunID: w.RunID, Epoch: first.Workspace.Authority.Epoch}
	_, err = s.Release(t.Context(), w.Principal, f, false)
	s.wantNoError("release", err)

	_, err = s.keyed(w, "key", "body")
	ended, _ := s.wantCode("after the release", err, ErrTenureEnded).(TenureEnding)
	if ended.How != "release" || ended.By != w.Actor() || ended.EndedAt.IsZero() {
		t.Errorf("the ending is told as %+v", ended)
	}
	if _, err = s.keyed(w, "another key", "body"); err != nil {
		t.Errorf("under a new key: %v", err)
	}
	_, err = s.keyed(w, "key", "body")
	s.wantCode("the old key while the run writes again", err, ErrTenureEnded)
}

func TestAKeyBelongsToItsCompanyAndItsPrincipal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := s.elsewhere()
	for _, w := range []struct {
		*scene
		worker
	}{
		{s, s.worker(s.boundTask(s.free()))},
		{s, s.worker(s.boundTask(s.free()))},
		{other, other.worker(other.boundTask(other.free()))},
	} {
		got, err := w.keyed(w.worker, "key", "body of "+w.RunID.String())
		if err != nil || got.Replayed {
			t.Errorf("the same key of another principal: %+v, %v", got, err)
		}
	}
}

func TestOfFiftyWithOneKeyOneBeginsATenure(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 16)
	for _, bound := range []bool{true, false} {
		task := s.task()
		if bound {
			task = s.boundTask(s.free())
		}
		w := s.worker(task)
		fresh := 0
		for _, r := range race(t, 50, func(int) (Reservation, error) { return s.keyed(w, "key", "body") }) {
			if r.err != nil {
				t.Errorf("one of fifty: %v", r.err)
			} else if !r.answer.Replayed {
				fresh++
			}
		}
		if n := s.count("SELECT count(*) FROM tenures WHERE run_id = $1", w.RunID); fresh != 1 || n != 1 {
			t.Errorf("%d answers are fresh and %d tenures began, want 1 of each", fresh, n)
		}
	}
}

// An operator reserves for runs of many tasks, and may use a key twice by mistake.
func TestOneKeyForTwoTasksAtOnceIsRefusedOnce(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for range 10 {
		key := uuid.NewString()
		workers := []worker{s.worker(s.boundTask(s.free())), s.worker(s.boundTask(s.free()))}
		granted := 0
		for _, r := range race(t, 2, func(i int) (Reservation, error) {
			w := workers[i]
			return s.Reserve(t.Context(), s.operator, ReserveInput{IssueID: w.task, RunID: w.RunID},
				Once{Key: key, Digest: []byte(w.task.String())})
		}) {
			if r.err == nil {
				granted++
				continue
			}
			if refused, known := AsRefusal(r.err); !known || refused.Code != ErrIdempotencyKey.Code {
				t.Errorf("the other: %v, want %s", r.err, ErrIdempotencyKey.Code)
			}
		}
		if granted != 1 {
			t.Errorf("%d of two reservations with one key were granted, want 1", granted)
		}
	}
}
