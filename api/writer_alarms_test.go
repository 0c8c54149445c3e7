package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/authority"
)

func TestMetricsTellOfWritersThatDoNotEndByThemselves(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	issue, workspace := s.parent(nil)
	if status, answer := s.reserve(issue, s.run(issue), nil); status != http.StatusOK {
		t.Fatal(answer)
	}
	wants := func(when string, lines ...string) {
		t.Helper()
		metrics := s.scrape()
		for _, line := range lines {
			if !strings.Contains(metrics, "\n"+line+"\n") {
				t.Errorf("%s: the metrics lack %q", when, line)
			}
		}
	}
	const requested, overdue, alert = `berth_stop_requests{state="requested"} `, `berth_stop_requests{state="overdue"} `, `berth_stop_requests{state="alert"} `
	wants("at work", "berth_silent_writers 0", requested+"0", overdue+"0", alert+"0", "berth_stop_request_overdue_oldest_seconds 0")
	ask := func(deadline time.Time) {
		t.Helper()
		s.Must(http.MethodPost, "/api/execution-workspaces/"+workspace+"/stop-request", object{"reason": "why", "deadline": deadline.UTC().Format(time.RFC3339)})
	}
	ask(time.Now().Add(time.Hour))
	wants("before the deadline", requested+"1", overdue+"0")
	ask(time.Now().Add(-time.Hour))
	wants("after it, before any sweep", requested+"0", overdue+"1", alert+"0")
	if err := s.Service.EnforceStopRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants("with nobody to prove the stop", overdue+"0", alert+"1")
	authority.WithSilentAfter(time.Nanosecond)(s.Service)
	wants("silent", "berth_silent_writers 1")
	if strings.Contains(s.scrape(), "berth_stop_request_overdue_oldest_seconds 0\n") {
		t.Error("what is overdue has no age")
	}
}
