package api_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"berth/api/apitest"
)

// object is an answer of the API.
type object = map[string]any

// scene is a company with what its tasks need, made through the API.
type scene struct {
	*apitest.Server
	t           *testing.T
	company     string
	agent       string
	project     string
	environment string
	machines    atomic.Int64
}

// writer is a run with its token.
type writer struct{ id, token string }

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Server: apitest.New(t), t: t}
	s.Must(http.MethodPatch, "/api/instance/settings", object{"experimental": object{"enableIsolatedWorkspaces": true}})
	s.environment = s.made("/api/environments", object{"name": "sandboxes", "driver": "sandbox"})
	s.join()
	return s
}

// join makes a company and works in it from here on.
func (s *scene) join() {
	s.company = s.made("/api/companies", object{"name": "Paperclip"})
	s.agent = s.made(s.in("agents"), object{"name": "Coder", "adapterType": "process"})
	s.project = s.made(s.in("projects"), object{"name": "Site"})
}

func (s *scene) in(collection string) string { return "/api/companies/" + s.company + "/" + collection }

// made creates something and returns its id.
func (s *scene) made(path string, body object) string {
	s.t.Helper()
	return s.Must(http.MethodPost, path, body)["id"].(string)
}

// workspace imports a workspace with a source issue, at epoch 3, free and clean, as changed by
// the fields given.
func (s *scene) workspace(sourceIssue string, fields object) string {
	s.t.Helper()
	body := object{
		"name": "tree", "projectId": s.project, "sourceIssueId": sourceIssue,
		"authority": object{"epoch": 3, "source": object{"kind": "empty"}},
	}
	for name, value := range fields {
		body[name] = value
	}
	return s.made(s.in("execution-workspaces"), body)
}

// parent makes a task that is bound to an imported workspace of its own.
func (s *scene) parent(fields object) (issue, workspace string) {
	s.t.Helper()
	issue = s.made(s.in("issues"), object{"title": "Parent", "projectId": s.project})
	workspace = s.workspace(issue, fields)
	s.Must(http.MethodPatch, "/api/issues/"+issue, object{"executionWorkspaceId": workspace})
	return issue, workspace
}

// child makes a task below parent, which inherits the workspace.
func (s *scene) child(parent string) string {
	s.t.Helper()
	return s.made(s.in("issues"), object{"title": "Child", "parentId": parent})
}

// run makes a running run of the scene's agent for the task.
func (s *scene) run(issue string) writer {
	s.t.Helper()
	created := s.Must(http.MethodPost, s.in("heartbeat-runs"), object{"agentId": s.agent, "issueId": issue})
	return writer{id: created["run"].(object)["id"].(string), token: created["token"].(string)}
}

// reserve asks by the run's own token for a workspace of the task.
func (s *scene) reserve(issue string, by writer, fields object) (int, object) {
	s.t.Helper()
	body := object{"runId": by.id}
	for name, value := range fields {
		body[name] = value
	}
	return s.Do(http.MethodPost, "/api/issues/"+issue+"/workspace/reservation", by.token, body)
}

func existing(workspace string) object { return object{"existingWorkspaceId": workspace} }

// lease holds a machine for a run.
func (s *scene) lease(by writer, fields object) object {
	s.t.Helper()
	body := object{
		"environmentId": s.environment, "heartbeatRunId": by.id, "provider": "daytona",
		"providerLeaseId": fmt.Sprintf("sandbox-%d", s.machines.Add(1)),
	}
	for name, value := range fields {
		body[name] = value
	}
	return s.Must(http.MethodPost, s.in("environment-leases"), body)
}

// row is a workspace as the database has it, every column.
func (s *scene) row(workspace string) string {
	s.t.Helper()
	var row string
	err := s.Database.Pool.QueryRow(context.Background(),
		`SELECT to_jsonb(w)::text FROM execution_workspaces w WHERE id = $1`, workspace).Scan(&row)
	if err != nil {
		s.t.Fatal(err)
	}
	return row
}

// unchanged runs do and fails unless the workspace's row is the same afterwards.
func (s *scene) unchanged(workspace string, do func()) {
	s.t.Helper()
	before := s.row(workspace)
	do()
	if after := s.row(workspace); after != before {
		s.t.Errorf("the row changed:\nbefore %s\nafter  %s", before, after)
	}
}

func (s *scene) get(workspace string) object {
	s.t.Helper()
	return s.Must(http.MethodGet, "/api/execution-workspaces/"+workspace, nil)
}

func refused(t *testing.T, status int, answer object, wantStatus int, wantCode string) {
	t.Helper()
	if status != wantStatus || answer["code"] != wantCode {
		t.Errorf("got %d %v, want %d %s", status, answer, wantStatus, wantCode)
	}
}
