package api

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"berth/authority"
)

// writerAlarms tells those who watch of writers that do not end by themselves. While the database does not answer the
// series are missing, which an alert on absence notices.
type writerAlarms struct {
	lately[authority.WriterAlarms]
	silent *prometheus.Desc
	stops  *prometheus.Desc
	oldest *prometheus.Desc
}

func newWriterAlarms(service *authority.Service, log *slog.Logger) *writerAlarms {
	return &writerAlarms{
		lately: lately[authority.WriterAlarms]{what: "unfinished writers are", count: service.WriterAlarms, log: log},
		silent: prometheus.NewDesc("berth_silent_writers", "Writers that were not heard of for the configured time.", nil, nil),
		stops: prometheus.NewDesc("berth_stop_requests",
			"Open requests to stop a writer: requested, overdue (past the deadline), alert (nobody could be brought to prove the stop).",
			[]string{"state"}, nil),
		oldest: prometheus.NewDesc("berth_stop_request_overdue_oldest_seconds",
			"For how long the oldest open request is past its deadline; 0 when there is none.", nil, nil),
	}
}

// Describe names the series.
func (a *writerAlarms) Describe(into chan<- *prometheus.Desc) {
	into <- a.silent
	into <- a.stops
	into <- a.oldest
}

// Collect counts anew, or repeats what was counted a moment ago.
func (a *writerAlarms) Collect(into chan<- prometheus.Metric) {
	alarms, err := a.look()
	if err != nil {
		return
	}
	into <- prometheus.MustNewConstMetric(a.silent, prometheus.GaugeValue, float64(alarms.Silent))
	for state, n := range map[string]int64{
		"requested": alarms.StopRequested, "overdue": alarms.StopOverdue, "alert": alarms.StopAlert,
	} {
		into <- prometheus.MustNewConstMetric(a.stops, prometheus.GaugeValue, float64(n), state)
	}
	into <- prometheus.MustNewConstMetric(a.oldest, prometheus.GaugeValue, alarms.OldestOverdue.Seconds())
}
