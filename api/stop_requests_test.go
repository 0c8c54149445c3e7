package api_test

import (
	"net/http"
	"testing"
)

func TestARequestToStopReachesTheWriterWithItsNextRenewal(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	body := map[string]any{"reason": "maintenance", "deadline": "2999-01-01T00:00:00.000001Z"}
	status, answer := s.Do(http.MethodPost, path+"/stop-request", s.token, body)
	refused(t, status, answer, http.StatusForbidden, "not_allowed")
	asked := s.Must(http.MethodPost, path+"/stop-request", body)
	if asked["state"] != "requested" || asked["runId"] != s.ids["runId"] || asked["epoch"] != float64(1) {
		t.Errorf("the request is %v", asked)
	}
	renewal := s.as(http.StatusOK, http.MethodPost, path+"/renew", s.claim())
	if told, _ := renewal["stopRequested"].(map[string]any); told["reason"] != "maintenance" || told["deadline"] != body["deadline"] {
		t.Errorf("the writer is told %v", renewal)
	}
	listed := s.Must(http.MethodGet, path+"/stop-requests", nil)["items"].([]any)
	if len(listed) != 1 || listed[0].(map[string]any)["id"] != asked["id"] {
		t.Errorf("the requests are %v", listed)
	}
	s.as(http.StatusOK, http.MethodPost, path+"/release", s.claim())
	status, answer = s.Do(http.MethodPost, path+"/stop-request", s.OperatorToken, body)
	refused(t, status, answer, http.StatusConflict, "no_writer")
}
