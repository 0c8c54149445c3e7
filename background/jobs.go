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
		periodic[cleanUpLeases](30*time.Second, counting(rules.CleanUpLeases)),
		periodic[enforceStopRequests](10*time.Second, rules.EnforceStopRequests),
		periodic[proveSilentWriters](30*time.Second, rules.ProveSilentWriters),
		periodic[forgetAnswers](time.Hour, counting(rules.ForgetAnswers)),
		periodic[forgetPlaces](time.Minute, counting(rules.ForgetPlaces)),
		periodic[retainSnapshots](time.Hour, counting(rules.RetainSnapshots)),
		periodic[collectSnapshots](time.Hour, counting(rules.CollectSnapshots)),
	}
}

type (
	retainSnapshots     struct{}
	collectSnapshots    struct{}
	cleanUpLeases       struct{}
	enforceStopRequests struct{}
	proveSilentWriters  struct{}
	forgetAnswers       struct{}
	forgetPlaces        struct{}
)

func (retainSnapshots) Kind() string     { return "retain_snapshots" }
func (collectSnapshots) Kind() string    { return "collect_snapshots" }
func (cleanUpLeases) Kind() string       { return "clean_up_leases" }
func (enforceStopRequests) Kind() string { return "enforce_stop_requests" }
func (proveSilentWriters) Kind() string  { return "prove_silent_writers" }
func (forgetAnswers) Kind() string       { return "forget_answers" }
func (forgetPlaces) Kind() string        { return "forget_places" }

// counting drops what a method counted, which is for its tests: the metrics say what is left to do.
func counting[Count any](do func(context.Context) (Count, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := do(ctx)
		return err
	}
}

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
