package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"berth/authority"
)

// metrics counts requests by route, status and code. A route is its pattern, so that ids do not multiply the series.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	problems *prometheus.CounterVec
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_http_request_duration_seconds", Help: "Time until the answer was complete, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"route"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_http_problems_total", Help: "Requests refused or failed, by route and code.",
		}, []string{"route", "code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	retries := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "berth_database_retries_total", Help: "Transactions that were run again because another one stood in their way.",
	}, func() float64 { return float64(authority.Retries()) })
	m.registry.MustRegister(m.requests, m.seconds, m.problems, build, retries,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) observe(pattern string, status int, code string, took time.Duration) {
	if pattern == "" {
		pattern = "none"
	}
	m.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(pattern).Observe(took.Seconds())
	if code != "" {
		m.problems.WithLabelValues(pattern, code).Inc()
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
