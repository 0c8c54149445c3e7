package authority

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
)

// gathering gives renewals a pool of one connection and takes that away, so that renewals gather until it is given
// back.
func (s *scene) gathering(t *testing.T) (giveBack func()) {
	t.Helper()
	pool := s.database.Open(t, 1)
	s.renewals.pool = pool
	taken, err := pool.Acquire(t.Context())
	s.wantNoError("take the connection", err)
	var once sync.Once
	giveBack = func() { once.Do(taken.Release) }
	t.Cleanup(giveBack)
	return giveBack
}

// gathered waits until n renewals wait behind the one that is being sent.
func (s *scene) gathered(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d renewals wait", n), func() bool {
		s.renewals.mu.Lock()
		defer s.renewals.mu.Unlock()
		return len(s.renewals.waiting) == n
	})
}

// renewing renews in the background; what comes of it is there when the channel is closed.
func (s *scene) renewing(ctx context.Context, by Principal, f Fence) (*Renewal, *error, <-chan struct{}) {
	var renewal Renewal
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		renewal, err = s.Renew(ctx, by, f)
	}()
	return &renewal, &err, done
}

func TestEachOfManyRenewalsGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first, firstFence := s.writer(s.free())
	well, wellFence := s.writer(s.free())
	asked, askedFence := s.writer(s.free())
	s.stopAt(askedFence.WorkspaceID, time.Hour)
	stale, staleFence := s.writer(s.free())
	staleFence.Epoch--
	ended, endedFence := s.writer(s.free())
	s.end(ended, "failed")
	other := s.elsewhere()
	foreign, foreignFence := other.writer(other.free())
	stranger := s.worker(s.task())

	giveBack := s.gathering(t)
	_, errFirst, doneFirst := s.renewing(t.Context(), first.Principal, firstFence)
	s.gathered(0)
	rWell, errWell, doneWell := s.renewing(t.Context(), well.Principal, wellFence)
	_, errTwice, doneTwice := s.renewing(t.Context(), well.Principal, wellFence)
	rAsked, errAsked, doneAsked := s.renewing(t.Context(), asked.Principal, askedFence)
	_, errStale, doneStale := s.renewing(t.Context(), stale.Principal, staleFence)
	_, errEnded, doneEnded := s.renewing(t.Context(), ended.Principal, endedFence)
	_, errForeign, doneForeign := s.renewing(t.Context(), foreign.Principal, foreignFence)
	// Of the other company's workspace, by a run of this one.
	_, errStranger, doneStranger := s.renewing(t.Context(), stranger.Principal, Fence{foreignFence.WorkspaceID, stranger.RunID, foreignFence.Epoch})
	s.gathered(7)
	giveBack()
	for _, done := range []<-chan struct{}{doneFirst, doneWell, doneTwice, doneAsked, doneStale, doneEnded, doneForeign, doneStranger} {
		<-done
	}
	s.wantNoError("the first", *errFirst)
	s.wantNoError("a writer", *errWell)
	s.wantNoError("the same once more", *errTwice)
	s.wantNoError("a writer that should stop", *errAsked)
	s.wantNoError("a writer of another company", *errForeign)
	s.wantCode("another epoch", *errStale, ErrStaleEpoch)
	s.wantCode("a run that ended", *errEnded, ErrTenureEnded)
	s.wantCode("a workspace of another company", *errStranger, ErrWorkspaceNotFound)
	if rWell.StopRequested != nil || rAsked.StopRequested == nil {
		t.Errorf("asked to stop: %v and %v", rWell.StopRequested, rAsked.StopRequested)
	}
	if noted := s.text("SELECT last_renewed_at::text FROM heartbeat_runs WHERE id = $1", well.RunID); noted == "" {
		t.Error("the renewal is not on record")
	}
	for what, run := range map[string]uuid.UUID{"stale": stale.RunID, "ended": ended.RunID, "stranger": stranger.RunID} {
		if noted := s.text("SELECT last_renewed_at::text FROM heartbeat_runs WHERE id = $1", run); noted != "" {
			t.Errorf("%s: a refused renewal is on record", what)
		}
	}
}

// locked holds a row's lock until the test gives it back.
func (s *scene) locked(t *testing.T, statement string, id uuid.UUID) (giveBack func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.database.ServiceURL)
	s.wantNoError("connect", err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	s.wantNoError("begin", err)
	_, err = tx.Exec(t.Context(), statement, id)
	s.wantNoError("lock", err)
	return func() { s.wantNoError("give the lock back", tx.Rollback(t.Context())) }
}

func TestARenewalThatHasToWaitHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	blocked, blockedFence := s.writer(s.free())
	busy, busyFence := s.writer(s.free())
	free, freeFence := s.writer(s.free())
	unlockWorkspace := s.locked(t, "SELECT FROM execution_workspaces WHERE id = $1 FOR UPDATE", blockedFence.WorkspaceID)
	unlockRun := s.locked(t, "SELECT FROM heartbeat_runs WHERE id = $1 FOR SHARE", busy.RunID)

	giveBack := s.gathering(t)
	_, errFirst, doneFirst := s.renewing(t.Context(), free.Principal, freeFence)
	s.gathered(0)
	_, errBlocked, doneBlocked := s.renewing(t.Context(), blocked.Principal, blockedFence)
	_, errBusy, doneBusy := s.renewing(t.Context(), busy.Principal, busyFence)
	_, errFree, doneFree := s.renewing(t.Context(), free.Principal, freeFence)
	s.gathered(3)
	giveBack()
	<-doneFirst
	<-doneFree
	s.wantNoError("the first", *errFirst)
	s.wantNoError("beside those that wait", *errFree)
	for what, done := range map[string]<-chan struct{}{"workspace": doneBlocked, "run": doneBusy} {
		select {
		case <-done:
			t.Errorf("a renewal was answered while its %s was locked", what)
		default:
		}
	}
	unlockWorkspace()
	unlockRun()
	<-doneBlocked
	<-doneBusy
	s.wantNoError("once the workspace is free", *errBlocked)
	s.wantNoError("once the run is free", *errBusy)
}

func TestACallerThatLeavesTakesNoRenewalAlong(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, fence := s.writer(s.free())
	giveBack := s.gathering(t)
	gone, leave := context.WithCancel(t.Context())
	_, errGone, doneGone := s.renewing(gone, w.Principal, fence) // its call is the one that sends
	_, errStays, doneStays := s.renewing(t.Context(), w.Principal, fence)
	leave()
	<-doneGone
	if *errGone == nil {
		t.Error("who left was told that it renewed")
	}
	giveBack()
	<-doneStays
	s.wantNoError("who stayed", *errStays)
}

func TestRenewalsThatCannotBeSentAreAllTold(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, fence := s.writer(s.free())
	giveBack := s.gathering(t)
	_, errFirst, doneFirst := s.renewing(t.Context(), w.Principal, fence)
	s.gathered(0)
	_, errSecond, doneSecond := s.renewing(t.Context(), w.Principal, fence)
	s.gathered(1)
	closing := make(chan struct{})
	go func(pool *pgxpool.Pool) { defer close(closing); pool.Close() }(s.renewals.pool)
	<-doneFirst
	<-doneSecond
	giveBack()
	<-closing
	for _, err := range []error{*errFirst, *errSecond} {
		if !db.IsUnavailable(err) {
			t.Errorf("without a database: %v", err)
		}
	}
	s.renewals.pool = s.database.Pool
	_, err := s.Renew(t.Context(), w.Principal, fence)
	s.wantNoError("with a database again", err)
}

// A renewal that is answered was the writer's at its commit: none is on record after the takeover that ended its tenure.
func TestNoRenewalOutlivesItsTenure(t *testing.T) {
	t.Parallel()
	const writers, rounds = 8, 25
	s := newCrowd(t, 12)
	for range rounds {
		var fences [writers]Fence
		var workers [writers]worker
		for i := range fences {
			workers[i], fences[i] = s.writer(s.free())
		}
		var all sync.WaitGroup
		for i := range fences {
			all.Go(func() {
				for {
					_, err := s.Renew(t.Context(), workers[i].Principal, fences[i])
					if err != nil {
						s.wantCode("renew", err, ErrTenureEnded)
						return
					}
				}
			})
			all.Go(func() {
				_, err := s.Takeover(t.Context(), s.operator, fences[i].WorkspaceID, acceptingRisk)
				if err != nil {
					t.Errorf("take over: %v", err)
				}
			})
		}
		all.Wait()
	}
	late := s.count(`SELECT count(*) FROM tenures t JOIN heartbeat_runs r ON r.id = t.run_id
		WHERE t.ended_how = 'takeover' AND r.last_renewed_at > t.ended_at`)
	if late > 0 {
		t.Errorf("%d runs renewed after their tenure", late)
	}
	if n := s.count("SELECT count(*) FROM heartbeat_runs WHERE last_renewed_at IS NOT NULL"); n < writers {
		t.Errorf("only %d runs renewed: there was no race", n)
	}
}
