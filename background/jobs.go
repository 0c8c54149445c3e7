package background

import (
	"context"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"berth/authority"
)

// table lists all background work: how often, and which method of the rules. A job that is new gets a kind of its own
// below, so that servers of an older version leave it to those that know it.
func table(rules *authority.Service) []job {
	return []job{
		periodic[cleanUpLeases](30*time.Second, func(ctx context.Context) error {
			_, err := rules.CleanUpLeases(ctx)
			return err
		}),
		periodic[enforceStopRequests](10*time.Second, rules.EnforceStopRequests),
		periodic[proveSilentWriters](30*time.Second, rules.ProveSilentWriters),
		periodic[forgetAnswers](time.Hour, func(ctx context.Context) error {
			_, err := rules.ForgetAnswers(ctx)
			return err
		}),
		periodic[forgetPlaces](time.Minute, func(ctx context.Context) error {
			_, err := rules.ForgetPlaces(ctx)
			return err
		}),
	}
}

type (
	cleanUpLeases       struct{}
	enforceStopRequests struct{}
	proveSilentWriters  struct{}
	forgetAnswers       struct{}
	forgetPlaces        struct{}
)

func (cleanUpLeases) Kind() string       { return "clean_up_leases" }
func (enforceStopRequests) Kind() string { return "enforce_stop_requests" }
func (proveSilentWriters) Kind() string  { return "prove_silent_writers" }
func (forgetAnswers) Kind() string       { return "forget_answers" }
func (forgetPlaces) Kind() string        { return "forget_places" }

// job is one kind of periodic work.
type job struct {
	every    time.Duration
	register func(*river.Workers) error
	new      func() (river.JobArgs, *river.InsertOpts)
}

// periodic makes the job of the kind Args out of the method that it calls.
func periodic[Args river.JobArgs](every time.Duration, do func(context.Context) error) job {
	return job{
		every:    every,
		register: func(all *river.Workers) error { return river.AddWorkerSafely(all, &worker[Args]{do: do}) },
		new: func() (river.JobArgs, *river.InsertOpts) {
			var args Args
			return args, onceAtATime
		},
	}
}

// onceAtATime keeps a kind from piling up, however many servers insert it and however long one of them hangs: there is
// one job of it that waits or runs. One that failed is not repeated, since the next comes with the next period.
var onceAtATime = &river.InsertOpts{
	MaxAttempts: 1,
	UniqueOpts: river.UniqueOpts{ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}},
}

type worker[Args river.JobArgs] struct {
	river.WorkerDefaults[Args]
	do func(context.Context) error
}

// Work does the job once.
func (w *worker[Args]) Work(ctx context.Context, _ *river.Job[Args]) error { return w.do(ctx) }
