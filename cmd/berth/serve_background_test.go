package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"berth/db/dbtest"
	"berth/db/postgres"
)

// caller calls the service as an operator with a token of the test's own.
type caller struct {
	t     *testing.T
	url   string
	token string
}

// call returns the status, and the answer if it is an object.
func (c caller) call(method, path string, body any) (int, map[string]any) {
	c.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(raw))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var answer map[string]any
	_ = json.Unmarshal(text, &answer) // an error page would show by its status
	return response.StatusCode, answer
}

// made creates something and returns it.
func (c caller) made(path string, body any) map[string]any {
	c.t.Helper()
	status, answer := c.call(http.MethodPost, path, body)
	if status != http.StatusCreated {
		c.t.Fatalf("POST %s: %d, %v", path, status, answer)
	}
	return answer
}

type fields = map[string]any

func TestServeAndItsBackgroundWorkComeBackWithTheDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	token := "token-" + uuid.NewString()
	s := start(t, openTempDir(t), []string{"BERTH_OPERATOR_TOKEN=" + token},
		"--database-url", server.URL(postgres.Service, postgres.Database),
		"--migrate-url", server.URL(postgres.Owner, postgres.Database))
	c := caller{t, s.url, token}
	company := c.made("/api/companies", fields{"name": "Acme"})["id"].(string)
	in := "/api/companies/" + company
	agent := c.made(in+"/agents", fields{"name": "Coder", "adapterType": "process"})["id"]
	issue := c.made(in+"/issues", fields{"title": "Task"})["id"].(string)
	environment := c.made("/api/environments", fields{"name": "sandboxes", "driver": "sandbox"})["id"]
	run := c.made(in+"/heartbeat-runs", fields{"agentId": agent, "issueId": issue, "status": "running"})["run"].(fields)["id"].(string)
	ended := c.made(in+"/heartbeat-runs", fields{"agentId": agent, "status": "running"})["run"].(fields)["id"].(string)
	lease := c.made(in+"/environment-leases", fields{
		"environmentId": environment, "heartbeatRunId": ended, "provider": "cloud", "providerLeaseId": "m-1",
	})["id"].(string)
	if status, answer := c.call(http.MethodPatch, "/api/heartbeat-runs/"+ended, fields{"status": "failed"}); status != http.StatusOK {
		t.Fatalf("finish the run: %d, %v", status, answer)
	}

	dir := server.Dir()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if status, answer := c.call(http.MethodPost, "/api/issues/"+issue+"/workspace/reservation", fields{"runId": run}); status != http.StatusServiceUnavailable {
			t.Fatalf("without a database a reservation answers %d, %v", status, answer)
		}
	}
	if status, _ := get(t, http.DefaultClient, s.url+"/api/ready"); status != http.StatusServiceUnavailable {
		t.Errorf("without a database it is ready: %d", status)
	}
	again, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Ephemeral: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })

	eventually(t, "it is ready", func() bool {
		status, _ := get(t, http.DefaultClient, s.url+"/api/ready")
		return status == http.StatusOK
	})
	if status, answer := c.call(http.MethodPost, "/api/issues/"+issue+"/workspace/reservation", fields{"runId": run}); status != http.StatusOK {
		t.Fatalf("with the database again a reservation answers %d, %v", status, answer)
	}
	eventually(t, "the background work took the lease", func() bool {
		_, answer := c.call(http.MethodGet, "/api/environment-leases/"+lease, nil)
		return answer["status"] == "pending_cleanup"
	})
	s.end(syscall.SIGINT) // before its database
}
