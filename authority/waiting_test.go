package authority

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
)

// waiting is a reservation that is open, and its answer once it has one.
type waiting struct {
	answer chan outcome[Reservation]
	leave  context.CancelFunc
}

// wait opens a reservation that waits for at most the seconds, and returns when it has its place.
func (s *scene) wait(w worker, seconds int) waiting {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	open := waiting{make(chan outcome[Reservation], 1), leave}
	go func() {
		r, err := s.Reserve(ctx, w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID, WaitSeconds: seconds}, Once{})
		open.answer <- outcome[Reservation]{r, err}
	}()
	s.eventually("the run has a place", func() bool {
		return s.count("SELECT count(*) FROM reservation_places WHERE run_id = $1", w.RunID) == 1
	})
	return open
}

// eventually polls until so is true, and fails the test when that takes unreasonably long.
func (s *scene) eventually(what string, so func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			s.t.Fatalf("never: %s", what)
		}
	}
}

// granted returns the reservation that the wait came to.
func (s *scene) granted(open waiting) Reservation {
	s.t.Helper()
	select {
	case got := <-open.answer:
		s.wantNoError("wait", got.err)
		return got.answer
	case <-time.After(20 * time.Second):
		s.t.Fatalf("the wait never ended")
		return Reservation{}
	}
}

// stillWaiting fails the test when the wait is over.
func (s *scene) stillWaiting(what string, open waiting) {
	s.t.Helper()
	select {
	case got := <-open.answer:
		s.t.Errorf("%s: its wait is over: %+v", what, got)
	default:
	}
}

// away makes the run's last poll as old as that.
func (s *scene) away(w worker, age string) {
	s.t.Helper()
	s.exec("UPDATE reservation_places SET last_polled_at = clock_timestamp() - $2::interval WHERE run_id = $1", w.RunID, age)
}

// gone leaves a run in line that has no open request any more.
func (s *scene) gone(w worker) {
	s.t.Helper()
	workspace := uuid.MustParse(s.text("SELECT execution_workspace_id::text FROM issues WHERE id = $1", w.task))
	asking := s.asking(s.company, w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID})
	s.wantNoError("take a place", s.takePlace(s.t.Context(), asking, workspace))
}

func TestThoseWhoWaitHaveTheirTurnsInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	first, second, third := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
	opened := []waiting{s.wait(first, 60), s.wait(second, 60), s.wait(third, 60)}
	release := func(w worker, f Fence) {
		_, err := s.Release(t.Context(), w.Principal, f, false)
		s.wantNoError("release", err)
	}
	release(holder, fence)
	for i, w := range []worker{first, second, third} {
		got := s.granted(opened[i])
		if id := got.Workspace.Authority.WriterRunID; id == nil || *id != w.RunID {
			t.Errorf("turn %d is %v's, want %s", i, id, w.RunID)
		}
		for _, later := range opened[i+1:] {
			s.stillWaiting("a later one", later)
		}
		release(w, Fence{WorkspaceID: workspace, RunID: w.RunID, Epoch: got.Workspace.Authority.Epoch})
	}
	if left := s.count("SELECT count(*) FROM reservation_places"); left != 0 {
		t.Errorf("%d places are left", left)
	}
}

func TestANewcomerDoesNotPassThoseWhoWait(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	patient, hasty := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
	s.gone(patient)
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	before := s.row(workspace)

	_, err = s.reserve(hasty)
	details, _ := s.wantCode("a newcomer", err, ErrWriterPending).(WriterPending)
	if details.State != "others_wait" || details.Position == nil || *details.Position != 2 || details.RetryAfter <= 0 {
		t.Errorf("a newcomer learns %+v", details)
	}
	if after := s.row(workspace); after != before {
		t.Errorf("a refused newcomer changed the workspace: %s", after)
	}
	explained, err := s.Explain(t.Context(), hasty.Principal, ReserveInput{IssueID: hasty.task, RunID: hasty.RunID})
	s.wantNoError("explain", err)
	if explained.Reservable || explained.Code == nil || *explained.Code != ErrWriterPending.Code {
		t.Errorf("explain says %+v", explained)
	}
	if _, err := s.reserve(patient); err != nil {
		t.Errorf("the one who waits: %v", err)
	}
}

func TestTheHeadThatMissesItsTurnGoesBehindTheNext(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	head, next, third := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
	for _, w := range []worker{head, next, third} {
		s.gone(w)
	}
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	s.away(head, "14 seconds")
	_, err = s.reserve(next)
	s.wantCode("the next while the head may still come", err, ErrWriterPending)

	s.away(head, "16 seconds")
	_, err = s.reserve(head)
	s.wantCode("a head that comes back too late", err, ErrWriterPending)
	s.gone(head)
	if order := s.lineOf(head.task); order[0] != next.RunID || order[1] != head.RunID || order[2] != third.RunID {
		t.Errorf("the line is %v, want next, head, third: %v %v %v", order, next.RunID, head.RunID, third.RunID)
	}
	if _, err := s.reserve(next); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// lineOf lists the runs in a task's line.
func (s *scene) lineOf(task uuid.UUID) []uuid.UUID {
	s.t.Helper()
	list, err := s.ListQueue(s.t.Context(), s.operator, task, Page{})
	s.wantNoError("list the line", err)
	runs := make([]uuid.UUID, 0, len(list.Items))
	for i, p := range list.Items {
		if p.Position != int64(i+1) {
			s.t.Errorf("place %d has position %d", i+1, p.Position)
		}
		runs = append(runs, p.Waiting.RunID)
	}
	return runs
}

func TestAPlaceSurvivesAMissedPollAndDiesAfterAMinute(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	s.writer(workspace)
	early, late := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
	s.gone(early)
	s.gone(late)
	s.exec("UPDATE reservation_places SET arrived_at = arrived_at - interval '1 hour'")
	s.away(late, "59 seconds")
	s.gone(late)
	if order := s.lineOf(late.task); len(order) != 2 || order[1] != late.RunID {
		t.Errorf("after 59 s the line is %v", order)
	}
	s.away(early, "61 seconds")
	if order := s.lineOf(late.task); len(order) != 1 || order[0] != late.RunID {
		t.Errorf("after 61 s the line is %v, want %s alone", order, late.RunID)
	}
	s.gone(early)
	if order := s.lineOf(late.task); len(order) != 2 || order[1] != early.RunID {
		t.Errorf("who comes back after its place died stands at %v", order)
	}
	s.away(early, "61 seconds")
	if n, err := s.ForgetPlaces(t.Context()); n != 1 || err != nil {
		t.Errorf("%d dead places deleted (%v), want 1", n, err)
	}
}

func TestAClientThatLeavesKeepsItsPlaceForAWhile(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	s.writer(workspace)
	w := s.worker(s.boundTask(workspace))
	open := s.wait(w, 60)
	open.leave()
	if got := <-open.answer; got.err == nil {
		t.Errorf("a client that left was granted %+v", got.answer)
	}
	if line := s.lineOf(w.task); len(line) != 1 || line[0] != w.RunID {
		t.Errorf("the line is %v", line)
	}
}

func TestAPlaceEndsWithItsRun(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	doomed, next := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
	open, behind := s.wait(doomed, 60), s.wait(next, 60)
	s.end(doomed, "cancelled")
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	if got := s.granted(behind); *got.Workspace.Authority.WriterRunID != next.RunID {
		t.Errorf("the writer is %s", got.Workspace.Authority.WriterRunID)
	}
	s.wantCode("the wait of a run that ended", (<-open.answer).err, ErrRunIdentity)
}

func TestAPlaceCanBeGivenUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	tired, next := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
	open, behind := s.wait(tired, 60), s.wait(next, 60)
	stranger := s.LeaveQueue(t.Context(), next.Principal, tired.task, tired.RunID)
	s.wantCode("another run's place", stranger, ErrNotAllowed)
	s.wantNoError("leave", s.LeaveQueue(t.Context(), tired.Principal, tired.task, tired.RunID))
	details, _ := s.wantCode("the wait that was given up", (<-open.answer).err, ErrWriterPending).(WriterPending)
	if details.State != "writer_running" {
		t.Errorf("details %+v", details)
	}
	s.wantNoError("leave again", s.LeaveQueue(t.Context(), tired.Principal, tired.task, tired.RunID))
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	s.granted(behind)
}

func TestAWaitThatTimesOutIsTheSameRefusal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	s.writer(workspace)
	w := s.worker(s.boundTask(workspace))
	began := time.Now()
	_, err := s.Reserve(t.Context(), w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID, WaitSeconds: 1}, Once{})
	details, _ := s.wantCode("after a second", err, ErrWriterPending).(WriterPending)
	if details.State != "writer_running" || details.Position == nil || *details.Position != 1 || details.Holder == nil {
		t.Errorf("details %+v", details)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("answered after %s, want a second of waiting", took)
	}
	if n := s.count("SELECT count FROM refusals WHERE run_id = $1", w.RunID); n != 1 {
		t.Errorf("%d refusals on record for one answer", n)
	}
	for _, seconds := range []int{-1, 61} {
		_, err := s.Reserve(t.Context(), w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID, WaitSeconds: seconds}, Once{})
		s.wantCode("an impossible wait", err, ErrValidation)
	}
}

func TestAWaitEndsByAHandoverOnceTheWriterIsProvenStopped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, _ := s.writer(workspace)
	lease := s.lease(holder)
	open := s.wait(s.worker(s.boundTask(workspace)), 60)
	s.end(holder, "failed")
	s.stillWaiting("before the proof", open)
	provider := s.text("SELECT provider_lease_id FROM environment_leases WHERE id = $1", lease)
	_, _, err := s.RecordReceipt(t.Context(), s.operator, lease, ReceiptInput{ProviderLeaseID: provider, State: "stopped", Kind: "termination"})
	s.wantNoError("record the receipt", err)
	if got := s.granted(open); got.Handover == nil || got.Handover.FromRunID != holder.RunID {
		t.Errorf("the handover is %+v", got.Handover)
	}
}

func TestWaitingIsRightWithoutNotifications(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.Service = New(s.database.Pool, s.store, s.log, WithPolling())
	workspace := s.free()
	holder, fence := s.writer(workspace)
	w := s.worker(s.boundTask(workspace))
	open := s.wait(w, 60)
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	s.granted(open)
}

func TestOnlyThePositionIsToldOfWhatMayNotBeRead(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	s.writer(workspace)
	open := s.worker(s.boundTask(workspace))
	other := s.newAgent()
	secret := s.workerOf(other, s.boundTask(workspace, "visibility", "private", "assignee_agent_id", other))
	s.gone(open)
	s.gone(secret)
	list, err := s.ListQueue(t.Context(), open.Principal, open.task, Page{})
	s.wantNoError("list the line", err)
	if len(list.Items) != 2 || list.Items[0].Waiting == nil || list.Items[1].Waiting != nil || list.Items[1].Position != 2 {
		t.Errorf("the line is %+v", list.Items)
	}
	stranger := Principal{Role: RoleRun, CompanyID: s.elsewhere().company, AgentID: uuid.New(), RunID: uuid.New()}
	_, err = s.ListQueue(t.Context(), stranger, open.task, Page{})
	s.wantCode("another company's line", err, ErrIssueNotFound)
	s.wantCode("another company's place", s.LeaveQueue(t.Context(), stranger, open.task, open.RunID), ErrIssueNotFound)
}

func TestAWorkspaceIsNotClosedWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	holder, fence := s.writer(workspace)
	s.gone(s.worker(s.boundTask(workspace)))
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	archived := "archived"
	_, err = s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: &archived})
	s.wantCode("close with a waiter", err, ErrWorkspaceInUse)
	s.exec("UPDATE reservation_places SET last_polled_at = clock_timestamp() - interval '2 minutes'")
	_, err = s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: &archived})
	s.wantNoError("close when its place died", err)
}

// The grant happens inside an open request, so each workspace that becomes free has exactly one
// winner, whoever waits at which server, and nobody is granted one that it does not hear of.
func TestEachReleaseHasOneWinnerAcrossServers(t *testing.T) {
	t.Parallel()
	const runs = 12
	s := newCrowd(t, 8)
	workspace := s.free()
	servers := []*Service{s.Service, s.serviceOn(t, s.pool), New(s.pool, s.store, s.log, WithPolling())}
	workers := make([]worker, runs)
	for i := range workers {
		workers[i] = s.worker(s.boundTask(workspace))
	}
	for i, got := range race(t, runs, func(i int) (Reservation, error) {
		at, w := servers[i%len(servers)], workers[i]
		for {
			r, err := at.Reserve(t.Context(), w.Principal, ReserveInput{IssueID: w.task, RunID: w.RunID, WaitSeconds: 2}, Once{})
			if errors.Is(err, ErrWriterPending) {
				continue // as a client does, whose place lives on
			}
			if err != nil {
				return r, err
			}
			f := Fence{WorkspaceID: workspace, RunID: w.RunID, Epoch: r.Workspace.Authority.Epoch}
			_, err = at.Release(t.Context(), w.Principal, f, false)
			return r, err
		}
	}) {
		if got.err != nil {
			t.Errorf("run %d: %v", i, got.err)
		}
	}
	if n := s.count("SELECT count(*) FROM tenures WHERE workspace_id = $1", workspace); n != runs {
		t.Errorf("%d tenures for %d runs", n, runs)
	}
	s.wantSoundHistory()
}
