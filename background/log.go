package background

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// silence is how long a message of River's is not repeated. While the database is away each of its parts says so at
// every try, several times a second.
const silence = time.Minute

// sparing is a log that lets through what a person has to know, and each message once in a while.
type sparing struct {
	slog.Handler
	said *said
}

// said remembers when which message was let through. There are as many as the code has.
type said struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func newSparing(log slog.Handler) sparing {
	return sparing{log, &said{when: map[string]time.Time{}}}
}

// Enabled reports whether somebody wants to read of it.
func (s sparing) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && s.Handler.Enabled(ctx, level)
}

// Handle writes a message, unless it was written a moment ago.
func (s sparing) Handle(ctx context.Context, record slog.Record) error {
	if !s.said.first(record.Message) {
		return nil
	}
	return s.Handler.Handle(ctx, record)
}

// WithAttrs is the same log with attributes.
func (s sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparing{s.Handler.WithAttrs(attrs), s.said}
}

// WithGroup is the same log with a group.
func (s sparing) WithGroup(name string) slog.Handler {
	return sparing{s.Handler.WithGroup(name), s.said}
}

// first reports whether the message was not let through for a while, and notes that it is now.
func (s *said) first(message string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.when[message]) < silence {
		return false
	}
	s.when[message] = now
	return true
}
