package postgres

import (
	"context"
	"fmt"
	"time"
)

// A server that dies is started again, after a pause that doubles with every
// start that did not last for healthyAfter. When it does not even start, and
// maxRestarts did not last before, it stays down.
const (
	maxRestarts  = 5
	firstPause   = 100 * time.Millisecond
	healthyAfter = time.Minute
)

// supervise owns the process from the first start to the end: it stops it when
// asked and replaces it when it dies.
func (s *Server) supervise(p *process) {
	defer close(s.done)
	defer s.release()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	failures, started := 0, time.Now()
	for {
		select {
		case <-s.stopping:
			p.stop()
			return
		case <-p.exited:
		}
		if time.Since(started) > healthyAfter {
			failures = 0
		}
		s.log.Error("private Postgres died", "dir", s.dir, "cause", p.err, "log", s.logFile())
		next, err := s.restart(ctx, &failures)
		if ctx.Err() != nil {
			if next != nil {
				next.stop()
			}
			return
		}
		if err != nil {
			s.err = fmt.Errorf("private Postgres died and did not come back: %w", err)
			return
		}
		p, started = next, time.Now()
		s.log.Info("private Postgres is back", "dir", s.dir)
	}
}

// restart tries to start the server again until it runs, too many attempts
// failed, or ctx ends.
func (s *Server) restart(ctx context.Context, failures *int) (*process, error) {
	for {
		pause := time.NewTimer(firstPause << min(*failures, maxRestarts))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-pause.C:
		}
		*failures++
		p, err := s.launch(ctx)
		if err == nil || ctx.Err() != nil || *failures >= maxRestarts {
			return p, err
		}
		s.log.Error("private Postgres did not start", "dir", s.dir, "error", err)
	}
}
