package background

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"berth/authority"
)

const (
	// schema is where River's tables are; package db migrates them.
	schema = "river"

	// connections are River's own, beside one that listens: its bookkeeping never waits for requests, nor they for
	// it. The jobs use the pool of the rules, for moments.
	connections = 3

	// workersAtOnce is how many jobs run in one server.
	workersAtOnce = 4

	// pollInterval is how often River looks for a job that no notification told it of.
	pollInterval = 5 * time.Second

	// defaultJobTime bounds a job. One that runs on for half of that again is taken for lost with its server, and the
	// next period begins anew.
	defaultJobTime = time.Minute

	// Done jobs are kept for a look at them, and no longer.
	keepDone   = 10 * time.Minute
	keepFailed = time.Hour

	// stopTime is what running jobs get to finish when the service ends; what is cut off goes on elsewhere.
	stopTime = 5 * time.Second
)

// Options are what Start leaves open.
type Options struct {
	// Log has failed jobs, and what River has to say; slog.Default if nil.
	Log *slog.Logger

	// PollOnly does without LISTEN, which does not come through a pooler that shares connections between transactions.
	PollOnly bool

	// Every runs each job that often instead of at its own pace; at least a second.
	Every time.Duration

	// JobTime bounds a job; a minute if zero.
	JobTime time.Duration
}

// Jobs are the background work of one server.
type Jobs struct {
	client *river.Client[pgx.Tx]
	pool   *pgxpool.Pool
}

// Start begins the background work. database is the pool of the service: River gets a small one of its own to the same
// place. The work outlives ctx, and ends with Stop.
func Start(ctx context.Context, database *pgxpool.Pool, rules *authority.Service, options Options) (*Jobs, error) {
	return start(ctx, database, table(rules), options)
}

func start(ctx context.Context, database *pgxpool.Pool, jobs []job, options Options) (*Jobs, error) {
	config, err := configure(jobs, options)
	if err != nil {
		return nil, fmt.Errorf("background work: %w", err)
	}
	own := database.Config()
	own.MaxConns, own.MinConns = connections, 0
	pool, err := pgxpool.NewWithConfig(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("background work: connect: %w", err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err == nil {
		err = client.Start(context.WithoutCancel(ctx))
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("background work: %w", err)
	}
	return &Jobs{client: client, pool: pool}, nil
}

// Stop ends the work: running jobs may finish for a moment and are then cut off, which loses nothing. It gives the
// connections back.
func (j *Jobs) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stopTime)
	defer cancel()
	// River cuts jobs off by itself, after stopTime.
	if err := j.client.Stop(ctx); err != nil {
		go j.pool.Close() // waits for connections that may never come back
		return fmt.Errorf("end the background work: %w", err)
	}
	j.pool.Close()
	return nil
}

func configure(jobs []job, options Options) (*river.Config, error) {
	log := options.Log
	if log == nil {
		log = slog.Default()
	}
	jobTime := cmp.Or(options.JobTime, defaultJobTime)
	config := &river.Config{
		Schema:                      schema,
		Queues:                      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workersAtOnce}},
		Workers:                     river.NewWorkers(),
		FetchOnlyKnownKinds:         true, // a newer server's jobs are that one's
		FetchPollInterval:           pollInterval,
		PollOnly:                    options.PollOnly,
		JobTimeout:                  jobTime,
		RescueStuckJobsAfter:        jobTime * 3 / 2,
		CompletedJobRetentionPeriod: keepDone,
		CancelledJobRetentionPeriod: keepFailed,
		DiscardedJobRetentionPeriod: keepFailed,
		ReindexerIndexNames:         []string{}, // an index is its owner's to rebuild, and the service owns nothing
		SoftStopTimeout:             stopTime,
		Logger:                      slog.New(newSparing(log.Handler())),
		ErrorHandler:                failures{log},
	}
	for _, j := range jobs {
		if err := j.register(config.Workers); err != nil {
			return nil, err
		}
		every := river.PeriodicInterval(cmp.Or(options.Every, j.every))
		config.PeriodicJobs = append(config.PeriodicJobs, river.NewPeriodicJob(every, j.new, &river.PeriodicJobOpts{RunOnStart: true}))
	}
	return config, nil
}

// failures logs jobs that failed. The errors are those of the rules, which keep what a provider sent to themselves.
type failures struct{ log *slog.Logger }

// HandleError logs a job that returned an error.
func (f failures) HandleError(ctx context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	f.log.WarnContext(ctx, "a background job failed; its next period tries again", "job", job.Kind, "error", err)
	return nil
}

// HandlePanic logs a job that panicked.
func (f failures) HandlePanic(ctx context.Context, job *rivertype.JobRow, cause any, stack string) *river.ErrorHandlerResult {
	f.log.ErrorContext(ctx, "a background job panicked", "job", job.Kind, "panic", fmt.Sprint(cause), "stack", stack)
	return nil
}
