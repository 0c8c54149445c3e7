package api

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"berth/authority"
)

// LeaseCleanup is how far the clean-up of a leased machine got, after its run ended.
type LeaseCleanup struct {
	Attempts      int     `json:"attempts" minimum:"0" doc:"Failed tries since the last step that succeeded."`
	NextAttemptAt *Time   `json:"nextAttemptAt" nullable:"true" doc:"Null once it is settled."`
	LastAttemptAt *Time   `json:"lastAttemptAt" nullable:"true"`
	LastErrorKind *string `json:"lastErrorKind" nullable:"true" maxLength:"100" doc:"Why the last try failed: unreachable, timeout, unauthorized, not_found, refused, malformed, elsewhere, misconfigured, wrong_machine, still_running or still_there. More may come."`
	HeldBackBy    *string `json:"heldBackBy" nullable:"true" maxLength:"100" doc:"Why nothing is tried: unsaved_work, retained, machine_in_use or unknown_provider. More may come."`
	WarnedAt      *Time   `json:"warnedAt" nullable:"true" doc:"When people were told that it goes on failing."`
	SettledAt     *Time   `json:"settledAt" nullable:"true"`
}

func leaseCleanupOf(c authority.LeaseCleanup) LeaseCleanup {
	return LeaseCleanup{
		Attempts: c.Attempts, NextAttemptAt: timeOf(c.NextAttemptAt), LastAttemptAt: timeOf(c.LastAttemptAt),
		LastErrorKind: c.LastErrorKind, HeldBackBy: c.HeldBackBy, WarnedAt: timeOf(c.WarnedAt), SettledAt: timeOf(c.SettledAt),
	}
}

// cleanupDebt tells those who watch how many machines of ended runs are not cleaned up yet. While the database does not
// answer the series are missing, which an alert on absence notices.
type cleanupDebt struct {
	lately[authority.CleanupDebt]
	leases *prometheus.Desc
	oldest *prometheus.Desc
}

func newCleanupDebt(service *authority.Service, log *slog.Logger) *cleanupDebt {
	return &cleanupDebt{
		lately: lately[authority.CleanupDebt]{what: "the debt of clean-ups is", count: service.CleanupDebt, log: log},
		leases: prometheus.NewDesc("berth_lease_cleanups",
			"Leases of ended runs whose machine is not cleaned up: pending, failing, held_back (by unsaved work or another run's use), unknown_provider.",
			[]string{"state"}, nil),
		oldest: prometheus.NewDesc("berth_lease_cleanup_oldest_seconds",
			"For how long the oldest of those that are pending or failing has been due; 0 when there is none.", nil, nil),
	}
}

// Describe names the series.
func (c *cleanupDebt) Describe(into chan<- *prometheus.Desc) {
	into <- c.leases
	into <- c.oldest
}

// Collect counts anew, or repeats what was counted a moment ago.
func (c *cleanupDebt) Collect(into chan<- prometheus.Metric) {
	debt, err := c.look()
	if err != nil {
		return
	}
	for state, n := range map[string]int64{
		"pending": debt.Pending, "failing": debt.Failing, "held_back": debt.HeldBack, "unknown_provider": debt.UnknownProvider,
	} {
		into <- prometheus.MustNewConstMetric(c.leases, prometheus.GaugeValue, float64(n), state)
	}
	into <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, debt.Oldest.Seconds())
}
