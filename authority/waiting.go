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

// reserveWaiting reserves, and waits in line while an unfinished writer is in the way. The grant happens in this
// request and nowhere else, so nobody gets a workspace who is not there to hear of it.
func (s *Service) reserveWaiting(ctx context.Context, asking reservationFacts) (Reservation, error) {
	enough := time.NewTimer(time.Duration(asking.asked.WaitSeconds) * time.Second)
	defer enough.Stop()
	var waiter *waiter
	for {
		answer, err := s.reserveNow(ctx, asking, trying{})
		switch {
		case err != nil || answer.refusal == nil:
			return answer.reservation, err
		case !answer.pending():
			return s.lastAnswer(ctx, asking, trying{onRecord: true})
		case waiter == nil:
			waiter = s.waiting.enter(asking.asked.RunID, *answer.workspace)
			defer waiter.leave()
			if err := s.takePlace(ctx, asking, *answer.workspace); err != nil {
				return Reservation{}, err
			}
			continue // what happened before the place was taken woke nobody here
		}
		select {
		case <-waiter.woken:
		case <-waiter.gone:
			return s.lastAnswer(ctx, asking, trying{onRecord: true, givenUp: true})
		case <-enough.C:
			kept, err := s.queries.KeepPlaces(ctx, s.pool, []uuid.UUID{waiter.run}) // the minute that it outlives begins now
			if err != nil {
				return Reservation{}, fmt.Errorf("keep a place in line: %w", err)
			}
			return s.lastAnswer(ctx, asking, trying{onRecord: true, givenUp: len(kept) == 0})
		case <-ctx.Done():
			return Reservation{}, ErrUnavailable.Say("The request ended before the run had its turn; its place lives on for a minute.")
		}
	}
}

// lastAnswer decides once more, for the caller to hear.
func (s *Service) lastAnswer(ctx context.Context, asking reservationFacts, how trying) (Reservation, error) {
	answer, err := s.reserveNow(ctx, asking, how)
	return answer.reservation, cmp.Or(err, answer.refused())
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
