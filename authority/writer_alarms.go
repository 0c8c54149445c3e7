package authority

import (
	"context"
	"fmt"
	"time"
)

// WriterAlarms counts the writers that somebody may have to look after, for those who watch.
type WriterAlarms struct {
	Silent        int64         // not heard of for the configured time
	StopRequested int64         // asked to stop, and the deadline is to come
	StopOverdue   int64         // past the deadline, and not proven stopped yet
	StopAlert     int64         // past it, and nobody could be brought to prove the stop
	OldestOverdue time.Duration // for how long the oldest of the overdue and the alerts is past its deadline
}

// WriterAlarms counts over all companies, also what no sweep has seen yet.
func (s *Service) WriterAlarms(ctx context.Context) (WriterAlarms, error) {
	row, err := s.queries.CountUnfinishedWriters(ctx, s.pool, s.silentAfter.Seconds())
	if err != nil {
		return WriterAlarms{}, fmt.Errorf("count unfinished writers: %w", err)
	}
	return WriterAlarms{
		Silent: row.Silent, StopRequested: row.StopRequested, StopOverdue: row.StopOverdue, StopAlert: row.StopAlert,
		OldestOverdue: time.Duration(row.OldestOverdueSeconds * float64(time.Second)),
	}, nil
}
