package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/api"
	"berth/authority"
)

// scrape reads the metrics of a server that nobody has read before.
func (s *scene) scrape() string {
	s.t.Helper()
	answer := httptest.NewRecorder()
	api.New(s.Service, api.Options{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		s.t.Fatalf("the metrics answer %d", answer.Code)
	}
	return answer.Body.String()
}

func TestMetricsTellWhatIsToBeCleanedUpAlsoWhenNoSweepLooks(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	run := s.Must(http.MethodPost, s.in("heartbeat-runs"), object{"agentId": s.agent, "status": "running"})["run"].(object)["id"].(string)
	lease := s.made(s.in("environment-leases"), object{
		"environmentId": s.environment, "heartbeatRunId": run, "provider": "cloud", "providerLeaseId": "m-1",
	})
	wants := func(when string, lines ...string) {
		t.Helper()
		metrics := s.scrape()
		for _, line := range lines {
			if !strings.Contains(metrics, "\n"+line) {
				t.Errorf("%s: the metrics lack %q", when, line)
			}
		}
	}
	const pending, unknown = `berth_lease_cleanups{state="pending"} `, `berth_lease_cleanups{state="unknown_provider"} `
	wants("while the run goes on", pending+"0", unknown+"0", "berth_lease_cleanup_oldest_seconds 0")
	s.Must(http.MethodPatch, "/api/heartbeat-runs/"+run, object{"status": "failed"})
	wants("after its end", pending+"1", unknown+"0")
	if strings.Contains(s.scrape(), "berth_lease_cleanup_oldest_seconds 0\n") {
		t.Error("what is due has no age")
	}
	authority.WithCleanupAfter(0)(s.Service)
	if _, err := s.Service.CleanUpLeases(t.Context()); err != nil {
		t.Fatal(err)
	}
	cleanup := s.Must(http.MethodGet, "/api/environment-leases/"+lease, nil)["cleanup"].(object)
	if cleanup["heldBackBy"] != "unknown_provider" || cleanup["nextAttemptAt"] == nil || cleanup["settledAt"] != nil {
		t.Errorf("the lease tells of its clean-up %v", cleanup)
	}
	wants("without a provider of that name", pending+"0", unknown+"1", "berth_lease_cleanup_oldest_seconds 0")
}

func TestMetricsAreThereWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.Database.Pool.Close()
	metrics := s.scrape()
	if !strings.Contains(metrics, "berth_build_info") || strings.Contains(metrics, "berth_lease_cleanups") {
		t.Error("without a database the metrics are not all but those that it answers")
	}
}
