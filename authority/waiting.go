package authority

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// maximumWaitSeconds bounds how long one request may stay open. Whoever waits longer asks again: a place outlives the
// gap between two requests.
const maximumWaitSeconds = 60

// Turn is a reservation that waits for its turn, from the first call of ReserveOrWait that returned it until one that
// does not. Whoever drops it before that ends it with Leave.
type Turn struct {
	waiter  *waiter
	enough  *time.Timer
	over    bool // the next decision is the last
	givenUp bool // nothing is granted any more
}

// ReserveOrWait is Reserve for callers that do the waiting themselves: where Reserve would wait it returns a Turn, and
// the caller calls again with it when its Await returned. The first call has a nil turn. The grant is made in such a
// call and nowhere else, so nobody gets a workspace who is not there to hear of it.
func (s *Service) ReserveOrWait(ctx context.Context, by Principal, in ReserveInput, once Once, turn *Turn) (Reservation, *Turn, error) {
	asking, err := s.mayReserve(ctx, by, in)
	if err != nil {
		turn.Leave()
		return Reservation{}, nil, err
	}
	asking.once = once
	if in.WaitSeconds == 0 || turn != nil && turn.over {
		defer turn.Leave()
		return s.lastAnswer(ctx, asking, turn)
	}
	answer, err := s.reserveNow(ctx, asking, trying{})
	switch {
	case err != nil || answer.refusal == nil:
		turn.Leave()
		return answer.reservation, nil, err
	case !answer.pending():
		defer turn.Leave()
		return s.lastAnswer(ctx, asking, turn)
	case turn != nil:
		return Reservation{}, turn, nil
	}
	turn = &Turn{
		waiter: s.waiting.enter(in.RunID, *answer.workspace),
		enough: time.NewTimer(time.Duration(in.WaitSeconds) * time.Second),
	}
	if err := s.takePlace(ctx, asking, *answer.workspace); err != nil {
		turn.Leave()
		return Reservation{}, nil, err
	}
	turn.waiter.wake() // what happened before the place was taken woke nobody
	return Reservation{}, turn, nil
}

// Await returns when it may be the turn's turn, when its time is over or its place was given up, or when ctx ends.
func (t *Turn) Await(ctx context.Context) {
	select {
	case <-t.waiter.woken:
	case <-t.waiter.gone:
		t.over, t.givenUp = true, true
	case <-t.enough.C:
		t.over = true
		// The minute that its place outlives it begins now. If that fails it began some seconds ago.
		if kept, err := t.waiter.room.keep(ctx, t.waiter.run); err == nil {
			t.givenUp = !kept
		}
	case <-ctx.Done():
		t.over = true
	}
}

// Leave ends the wait; the place lives on for a minute, for the next call. It may be called again, and on nil.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	t.enough.Stop()
	t.waiter.leave()
}

// lastAnswer decides for the caller to hear, whatever comes of it.
func (s *Service) lastAnswer(ctx context.Context, asking reservationFacts, turn *Turn) (Reservation, *Turn, error) {
	answer, err := s.reserveNow(ctx, asking, trying{onRecord: true, givenUp: turn != nil && turn.givenUp})
	return answer.reservation, nil, cmp.Or(err, answer.refused())
}

// pending reports whether waiting can help.
func (r reply) pending() bool {
	return r.refusal != nil && r.refusal.Code == ErrWriterPending.Code && r.workspace != nil
}

// takePlace puts the run in the line of a workspace, or polls for the place that it has.
func (s *Service) takePlace(ctx context.Context, asking reservationFacts, workspace uuid.UUID) error {
	_, err := s.queries.TakePlace(ctx, s.pool, db.TakePlaceParams{
		CompanyID: asking.company, WorkspaceID: workspace, IssueID: asking.asked.IssueID, RunID: asking.asked.RunID,
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // a run that ended meanwhile is told so by the next decision
		return fmt.Errorf("take a place in line: %w", err)
	}
	return nil
}
