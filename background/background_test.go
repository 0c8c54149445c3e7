package background

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
	"berth/db/dbtest"
	"berth/db/postgres"
)

// tick is a job of the tests.
type tick struct{}

func (tick) Kind() string { return "tick" }

// begin starts one server's background work with a job that calls do every second.
func begin(t *testing.T, pool *pgxpool.Pool, options Options, do func(context.Context) error) *Jobs {
	t.Helper()
	options.Every = time.Second
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	jobs, err := start(t.Context(), pool, []job{periodic[tick](time.Second, do)}, options)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func stop(t *testing.T, jobs *Jobs) {
	t.Helper()
	if err := jobs.Stop(); err != nil {
		t.Error(err)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, query string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func TestAJobRunsInOneOfManyServersAtATime(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var running, most, runs atomic.Int64
	do := func(context.Context) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		runs.Add(1)
		return nil
	}
	var servers []*Jobs
	for range 3 {
		servers = append(servers, begin(t, d.Pool, Options{}, do))
	}
	eventually(t, "the job ran a few times", func() bool { return runs.Load() >= 3 })
	if most.Load() != 1 {
		t.Errorf("the job ran %d times at once", most.Load())
	}
	for _, server := range servers {
		stop(t, server)
	}
	after := runs.Load()
	if left := count(t, d.Pool, "SELECT count(*) FROM river.river_job WHERE state = 'running'"); left > 0 || runs.Load() != after {
		t.Errorf("after the end %d jobs run", left)
	}
}

func TestAJobThatHangsIsCutOffAndDoesNotPileUp(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var begun, cut atomic.Int64
	jobs := begin(t, d.Pool, Options{JobTime: 2 * time.Second}, func(ctx context.Context) error {
		begun.Add(1)
		<-ctx.Done()
		cut.Add(1)
		return ctx.Err()
	})
	defer stop(t, jobs)
	eventually(t, "the job hangs", func() bool { return begun.Load() == 1 })
	for begun.Load() == 1 {
		if waiting := count(t, d.Pool, "SELECT count(*) FROM river.river_job WHERE state NOT IN ('completed', 'discarded')"); waiting > 1 {
			t.Fatalf("%d jobs wait beside the one that hangs", waiting)
		}
	}
	if cut.Load() < 1 {
		t.Error("another began before the first was cut off")
	}
}

func TestAFailedJobIsLoggedAndComesAgainWithItsPeriod(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	log := &lines{}
	var runs atomic.Int64
	jobs := begin(t, d.Pool, Options{Log: slog.New(slog.NewTextHandler(log, nil))}, func(context.Context) error {
		switch runs.Add(1) {
		case 1:
			return errors.New("the first time fails")
		case 2:
			panic("the second time panics")
		}
		return nil
	})
	defer stop(t, jobs)
	eventually(t, "the job succeeds", func() bool { return runs.Load() >= 3 })
	for _, part := range []string{"the first time fails", "the second time panics", "job=tick"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log does not say %q:\n%s", part, log)
		}
	}
}

func TestOldJobsAreRemoved(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, state := range []string{"completed", "discarded"} {
		if _, err := d.Pool.Exec(t.Context(), `INSERT INTO river.river_job (state, kind, args, max_attempts, finalized_at)
			SELECT $1::river.river_job_state, 'old', '{}', 1, now() - interval '2 hours' FROM generate_series(1, 500)`, state); err != nil {
			t.Fatal(err)
		}
	}
	jobs := begin(t, d.Pool, Options{}, func(context.Context) error { return nil })
	defer stop(t, jobs)
	eventually(t, "the old jobs are gone", func() bool {
		return count(t, d.Pool, "SELECT count(*) FROM river.river_job WHERE kind = 'old'") == 0
	})
}

func TestBackgroundWorkTakesFewConnectionsAndListensUnlessToldToPoll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options   Options
		listeners int
	}{
		"listens": {Options{}, 1},
		"polls":   {Options{PollOnly: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			var runs atomic.Int64
			jobs := begin(t, d.Pool, c.options, func(context.Context) error { runs.Add(1); return nil })
			defer stop(t, jobs)
			most := 0
			eventually(t, "the job ran twice", func() bool {
				most = max(most, count(t, d.Pool, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND usename = 'berth' AND pid <> pg_backend_pid()`))
				return runs.Load() >= 2
			})
			if allowed := connections + 1 + int(d.Pool.Stat().MaxConns()); most > allowed {
				t.Errorf("%d connections, want %d at most", most, allowed)
			}
			listeners := count(t, d.Pool, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND query ILIKE 'listen%' AND pid <> pg_backend_pid()`)
			if listeners != c.listeners {
				t.Errorf("%d connections listen, want %d", listeners, c.listeners)
			}
		})
	}
}

func TestBackgroundWorkComesBackWithItsDatabaseAndIsQuietMeanwhile(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	if err := db.Migrate(t.Context(), server.URL(postgres.Owner, postgres.Database)); err != nil {
		t.Fatal(err)
	}
	pool, err := db.Open(t.Context(), server.URL(postgres.Service, postgres.Database), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	log := &lines{}
	var runs atomic.Int64
	jobs := begin(t, pool, Options{Log: slog.New(slog.NewTextHandler(log, nil))}, func(context.Context) error { runs.Add(1); return nil })
	eventually(t, "the job ran", func() bool { return runs.Load() > 0 })
	dir := server.Dir()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	before, began := runs.Load(), time.Now()
	eventually(t, "ten seconds without a database", func() bool { return time.Since(began) > 10*time.Second })
	if runs.Load() > before+1 {
		t.Error("the job runs without a database")
	}
	if said := strings.Count(log.String(), "\n"); said > 15 {
		t.Errorf("ten seconds without a database fill %d lines of the log:\n%s", said, log)
	}
	again, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Ephemeral: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop() //nolint:errcheck // the test is over
	before = runs.Load()
	eventually(t, "the job runs again", func() bool { return runs.Load() > before })
	stop(t, jobs)
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
