package api

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// What a look at the metrics may cost the database: metrics need no token.
const (
	latelyTimeout = 2 * time.Second
	latelyFresh   = 5 * time.Second // one answer serves all who look within that time
)

// lately is a count for the metrics that the database is asked for.
type lately[T any] struct {
	what  string // for the log
	count func(context.Context) (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	last    T
	lastErr error
	asked   time.Time
}

// look counts anew, or repeats what was counted a moment ago.
func (l *lately[T]) look() (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.asked) < latelyFresh {
		return l.last, l.lastErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), latelyTimeout)
	defer cancel()
	l.last, l.lastErr = l.count(ctx)
	l.asked = time.Now()
	if l.lastErr != nil {
		l.log.Warn("metrics: "+l.what+" not known", "error", l.lastErr)
	}
	return l.last, l.lastErr
}
