package authority

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// ProveSilentWriters looks after writers that were not heard of for the configured time. Each silence is told
// once, as the event writer.silent. The providers of the run's machines are then asked what became of them, and
// for nothing else: if every machine is proven stopped, the run is finished as interrupted in the name of the
// silence. Otherwise nothing changes, however long it lasts. A writer that renews is not silent any more.
//
// Any number of servers may call it at any time.
func (s *Service) ProveSilentWriters(ctx context.Context) error {
	if _, err := s.queries.EndSilences(ctx, s.pool); err != nil {
		return fmt.Errorf("end the silences of writers that were heard: %w", err)
	}
	err := db.Retry(ctx, func() error {
		noticed, err := s.queries.NoteSilences(ctx, s.pool, s.silentAfter.Seconds())
		if err == nil && noticed > 0 {
			s.log.WarnContext(ctx, "writers fell silent", "writers", noticed)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note silent writers: %w", err)
	}
	return s.untilNothingIsDue(ctx, s.proveOneSilence)
}

// proveOneSilence makes one attempt for one silent writer. It reports false when none is due.
func (s *Service) proveOneSilence(ctx context.Context) (bool, error) {
	claim := uuid.New()
	silence, err := s.queries.ClaimSilence(ctx, s.pool, claim)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim a silence: %w", err)
	}
	p := pursuit{
		company: silence.CompanyID, workspace: silence.WorkspaceID, epoch: silence.Epoch, run: silence.RunID,
		actor: "silence:" + strconv.FormatInt(silence.ID, 10), heardAt: &silence.HeardAt,
		settle: func(tx pgx.Tx, how ending) (int64, error) {
			word := map[ending]string{endingProven: "stopped", endingOver: "over", endingHeard: "heard"}[how]
			return s.queries.EndSilence(ctx, tx, db.EndSilenceParams{ID: silence.ID, Claim: claim, EndedHow: word})
		},
	}
	missing, err := s.pursue(ctx, p)
	if err != nil || missing == "" {
		return true, err
	}
	_, err = s.queries.PostponeSilence(ctx, s.pool, db.PostponeSilenceParams{
		ID: silence.ID, Claim: claim, ErrorKind: missing, Seconds: pauseAfter(int(silence.Attempts)).Seconds(),
	})
	if err != nil {
		return true, fmt.Errorf("postpone a silence: %w", err)
	}
	return true, nil
}
