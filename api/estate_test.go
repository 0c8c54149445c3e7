package api_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"berth/api/apitest"
)

// estate is a company in which a run is about to write its task's workspace, with everything that has an id.
type estate struct {
	*apitest.Server
	t     *testing.T
	ids   map[string]string // by the name that the API gives the id
	token string            // the run's
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	return addEstate(t, apitest.New(t))
}

// addEstate makes another company on a server.
func addEstate(t *testing.T, server *apitest.Server) *estate {
	t.Helper()
	s := &estate{Server: server, t: t, ids: map[string]string{}}
	s.create("companyId", "/api/companies", map[string]any{"name": "Acme"})
	company := "/api/companies/" + s.ids["companyId"]
	s.create("agentId", company+"/agents", map[string]any{"name": "Ann", "adapterType": "process"})
	s.create("projectId", company+"/projects", map[string]any{"name": "Product"})
	s.create("projectWorkspaceId", "/api/projects/"+s.ids["projectId"]+"/workspaces", map[string]any{
		"name": "Repository", "sourceType": "git_repo", "repoUrl": "https://example.org/r.git", "isPrimary": true,
	})
	s.create("environmentId", "/api/environments", map[string]any{"name": "Sandbox", "driver": "sandbox", "config": map[string]any{"cpus": 2}})
	s.create("issueId", company+"/issues", map[string]any{"title": "Task", "projectId": s.ids["projectId"]})
	run := s.Must(http.MethodPost, company+"/heartbeat-runs", map[string]any{"agentId": s.ids["agentId"], "issueId": s.ids["issueId"]})
	s.ids["runId"], s.token = run["run"].(map[string]any)["id"].(string), run["token"].(string)
	s.create("leaseId", company+"/environment-leases", map[string]any{
		"environmentId": s.ids["environmentId"], "heartbeatRunId": s.ids["runId"], "provider": "sandboxes", "providerLeaseId": "sb-1",
	})
	return s
}

func (s *estate) create(name, path string, body map[string]any) {
	s.t.Helper()
	s.ids[name] = s.Must(http.MethodPost, path, body)["id"].(string)
}

// as calls by the run's own token and wants this status.
func (s *estate) as(status int, method, path string, body any) map[string]any {
	s.t.Helper()
	got, answer := s.Do(method, path, s.token, body)
	if got != status {
		s.t.Fatalf("%s %s: %d %v, want %d", method, path, got, answer, status)
	}
	return answer
}

// reserve makes the run the writer, and returns its workspace's path.
func (s *estate) reserve() string {
	s.t.Helper()
	answer := s.as(http.StatusOK, http.MethodPost, "/api/issues/"+s.ids["issueId"]+"/workspace/reservation", map[string]any{"runId": s.ids["runId"]})
	s.ids["workspaceId"] = answer["workspace"].(map[string]any)["id"].(string)
	return "/api/execution-workspaces/" + s.ids["workspaceId"]
}

func (s *estate) claim() map[string]any {
	return map[string]any{"runId": s.ids["runId"], "epoch": 1}
}

// with is a copy of a body with one more member.
func with(body map[string]any, name string, value any) map[string]any {
	copied := map[string]any{name: value}
	for n, v := range body {
		if n != name {
			copied[n] = v
		}
	}
	return copied
}

func newID() string { return uuid.NewString() }
