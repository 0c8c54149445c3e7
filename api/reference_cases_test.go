package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The cases of the reference system that Berth keeps: each through HTTP, with a database of its own.

func TestReserveTakesTheInheritedWorkspaceInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"isolated_workspace", "operator_branch", "shared_workspace"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			parent, workspace := s.parent(object{"mode": mode})
			child := s.child(parent)
			by := s.run(child)
			want := s.get(workspace)
			want["authority"].(object)["epoch"] = 4.0
			want["authority"].(object)["writerRunId"] = by.id
			for again := range 2 {
				status, answer := s.reserve(child, by, existing(workspace))
				if status != http.StatusOK {
					t.Fatalf("reserve: %d %v", status, answer)
				}
				if diff := cmp.Diff(want, answer["workspace"]); diff != "" {
					t.Errorf("the workspace (-want +got):\n%s", diff)
				}
				if answer["replayed"] != (again == 1) || answer["handover"] != nil {
					t.Errorf("reservation %d: replayed %v, handover %v", again, answer["replayed"], answer["handover"])
				}
			}
			if diff := cmp.Diff(want, s.get(workspace)); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReserveRefusesAnUnboundTask(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, workspace := s.parent(nil)
	child := s.made(s.in("issues"), object{"title": "Child", "parentId": parent, "inheritWorkspace": false})
	by := s.run(child)
	s.unchanged(workspace, func() {
		status, answer := s.reserve(child, by, existing(workspace))
		refused(t, status, answer, http.StatusConflict, "task_workspace_binding_unavailable")
		if !strings.Contains(answer["detail"].(string), "Task workspace binding is unavailable") {
			t.Errorf("detail: %v", answer["detail"])
		}
	})
}

func TestReserveTakesAnExplicitlyChosenRoot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.Must(http.MethodPatch, "/api/projects/"+s.project, object{"executionWorkspacePolicy": object{
		"authorizationPolicy": object{"assignmentPolicy": object{"mode": "protected"}},
	}})
	s.Must(http.MethodPost, s.in("memberships"), object{"principalType": "agent", "principalId": s.agent, "status": "active"})
	root, workspace := s.parent(nil)
	child := s.made(s.in("issues"), object{"title": "Child"})
	first := s.run(child)

	s.decides(first, "project:read", object{"type": "project", "companyId": s.company, "projectId": s.project}, true)
	s.decides(first, "project:write_workspace",
		object{"type": "issue", "companyId": s.company, "issueId": child, "projectId": s.project}, false)

	status, answer := s.Do(http.MethodPut, "/api/issues/"+child+"/workspace", first.token, object{
		"selection": object{"kind": "existing", "workspaceId": workspace}, "expectedBindingRevision": 0, "requestKey": "choose",
	})
	if status != http.StatusOK || answer["kind"] != "scheduled" || answer["applies"] != "next_normal_admission" {
		t.Fatalf("select: %d %v", status, answer)
	}
	s.finish(first, "succeeded", first.token)
	next := s.run(child)
	status, answer = s.Do(http.MethodPost, "/api/issues/"+child+"/workspace/apply", next.token, object{"runId": next.id})
	if status != http.StatusOK || answer["applied"] != true {
		t.Fatalf("apply: %d %v", status, answer)
	}
	status, answer = s.reserve(child, next, existing(workspace))
	if status != http.StatusOK {
		t.Fatalf("reserve: %d %v", status, answer)
	}
	got := answer["workspace"].(object)
	if got["id"] != workspace || got["sourceIssueId"] != root {
		t.Errorf("workspace %v from issue %v, want %s from %s", got["id"], got["sourceIssueId"], workspace, root)
	}
}

// decides asks as an operator what the run's agent may do.
func (s *scene) decides(by writer, action string, resource object, want bool) {
	s.t.Helper()
	answer := s.Must(http.MethodPost, "/api/access/decisions", object{
		"actor":  object{"type": "agent", "source": "agent_jwt", "companyId": s.company, "agentId": s.agent, "runId": by.id},
		"action": action, "resource": resource,
	})
	if answer["allowed"] != want {
		s.t.Errorf("%s: %v, want allowed %v", action, answer, want)
	}
}

// finish ends a run with the token given: its own, or an operator's.
func (s *scene) finish(by writer, status, token string) {
	s.t.Helper()
	code, answer := s.Do(http.MethodPatch, "/api/heartbeat-runs/"+by.id, token, object{"status": status})
	if code != http.StatusOK || answer["status"] != status {
		s.t.Fatalf("finish: %d %v", code, answer)
	}
}

func TestReserveRefusesATreeWithAPrivateTaskBehindIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, workspace := s.parent(nil)
	child := s.child(parent)
	by := s.run(child)
	s.Must(http.MethodPatch, "/api/issues/"+parent, object{"visibility": "private"})
	s.unchanged(workspace, func() {
		status, answer := s.reserve(child, by, existing(workspace))
		refused(t, status, answer, http.StatusForbidden, "workspace_access_denied")
	})
}

func TestReserveWaitsForTheReleaseNotForTheRunsEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, workspace := s.parent(nil)
	child, sibling := s.child(parent), s.child(parent)
	holder, other := s.run(child), s.run(sibling)
	if status, answer := s.reserve(child, holder, nil); status != http.StatusOK {
		t.Fatalf("reserve: %d %v", status, answer)
	}
	fence := object{"runId": holder.id, "epoch": 4}
	if status, answer := s.Do(http.MethodPost, "/api/execution-workspaces/"+workspace+"/dirty", holder.token, fence); status != http.StatusOK {
		t.Fatalf("dirty: %d %v", status, answer)
	}
	s.unchanged(workspace, func() {
		status, answer := s.reserve(sibling, other, existing(workspace))
		refused(t, status, answer, http.StatusConflict, "remote_workspace_writer_pending")
		if !strings.Contains(answer["detail"].(string), "unfinished writer") {
			t.Errorf("detail: %v", answer["detail"])
		}
		if held, _ := answer["details"].(object)["holder"].(object); held["runId"] != holder.id {
			t.Errorf("details: %v, want the holder %s", answer["details"], holder.id)
		}
	})
	fence["discard"] = true
	if status, answer := s.Do(http.MethodPost, "/api/execution-workspaces/"+workspace+"/release", holder.token, fence); status != http.StatusOK {
		t.Fatalf("release: %d %v", status, answer)
	}
	if run := s.Must(http.MethodGet, "/api/heartbeat-runs/"+holder.id, nil); run["status"] != "running" {
		t.Fatalf("the holder is %v, and this case is about one that still runs", run["status"])
	}
	if status, answer := s.reserve(sibling, other, existing(workspace)); status != http.StatusOK {
		t.Errorf("reserve the released workspace: %d %v", status, answer)
	}
}

// endedWriter makes a workspace whose writer was cancelled, clean, with its machine waiting for a
// clean-up that failed.
func endedWriter(s *scene) (workspace, sibling string, ended writer, lease object) {
	s.t.Helper()
	parent, workspace := s.parent(nil)
	child := s.child(parent)
	ended = s.run(child)
	lease = s.lease(ended, object{"status": "pending_cleanup", "cleanupStatus": "failed"})
	if status, answer := s.reserve(child, ended, nil); status != http.StatusOK {
		s.t.Fatalf("reserve: %d %v", status, answer)
	}
	s.finish(ended, "cancelled", s.OperatorToken)
	return workspace, s.child(parent), ended, lease
}

func TestReserveFollowsAWriterThatIsProvenStopped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, sibling, ended, lease := endedWriter(s)
	s.Must(http.MethodPost, "/api/environment-leases/"+lease["id"].(string)+"/termination-receipts", object{
		"providerLeaseId": lease["providerLeaseId"], "state": "stopped", "kind": "recovery_cleanup", "runId": ended.id,
	})
	next := s.run(sibling)
	status, answer := s.reserve(sibling, next, existing(workspace))
	if status != http.StatusOK {
		t.Fatalf("reserve: %d %v", status, answer)
	}
	authority := answer["workspace"].(object)["authority"].(object)
	if authority["epoch"] != 5.0 || authority["writerRunId"] != next.id {
		t.Errorf("authority %v, want epoch 5 and the writer %s", authority, next.id)
	}
	want := object{"kind": "proof", "fromRunId": ended.id, "fromEpoch": 4.0, "unproven": false, "unsavedWork": false}
	if diff := cmp.Diff(want, answer["handover"]); diff != "" {
		t.Errorf("handover (-want +got):\n%s", diff)
	}
}

func TestReserveRefusesAnEndedWriterWithoutProof(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, sibling, _, lease := endedWriter(s)
	next := s.run(sibling)
	s.unchanged(workspace, func() {
		status, answer := s.reserve(sibling, next, existing(workspace))
		refused(t, status, answer, http.StatusConflict, "remote_workspace_writer_pending")
		details := answer["details"].(object)
		missing, _ := details["missingProof"].([]any)
		if details["state"] != "writer_ended_unproven" || len(missing) != 1 || missing[0].(object)["leaseId"] != lease["id"] {
			t.Errorf("details: %v", details)
		}
	})
}

func TestReceiptOfAnotherRunProvesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace, sibling, ended, lease := endedWriter(s)
	next := s.run(sibling)
	s.unchanged(workspace, func() {
		status, answer := s.Do(http.MethodPost, "/api/environment-leases/"+lease["id"].(string)+"/termination-receipts", s.OperatorToken,
			object{"providerLeaseId": lease["providerLeaseId"], "state": "stopped", "kind": "recovery_cleanup", "runId": next.id})
		refused(t, status, answer, http.StatusUnprocessableEntity, "receipt_rejected")
		if reason := answer["details"].(object)["reason"]; reason != "lease_run_mismatch" {
			t.Errorf("reason: %v", reason)
		}
		_, err := s.Database.Pool.Exec(context.Background(), `
			INSERT INTO termination_receipts (id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by)
			VALUES (gen_random_uuid(), $1, $2, $3, $4, $5, 'stopped', 'recovery_cleanup', 'psql')`,
			s.company, lease["id"], next.id, lease["provider"], lease["providerLeaseId"])
		if err == nil || !strings.Contains(err.Error(), "termination_receipts_lease_fkey") {
			t.Errorf("the database stored a receipt of lease %v of run %s for run %s: %v", lease["id"], ended.id, next.id, err)
		}
		status, answer = s.reserve(sibling, next, existing(workspace))
		refused(t, status, answer, http.StatusConflict, "remote_workspace_writer_pending")
	})
}

func TestReserveLetsOneOfTwoSiblingsIn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.race(2, 1)
}

func TestReserveLetsOneOf64In(t *testing.T) {
	t.Parallel()
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	newScene(t).race(64, rounds)
}

// race lets as many runs reserve one workspace at once, and does so for a number of rounds.
func (s *scene) race(racers, rounds int) {
	s.t.Helper()
	parent, workspace := s.parent(nil)
	runs, tasks := make([]writer, racers), make([]string, racers)
	for i := range runs {
		tasks[i] = s.child(parent)
		runs[i] = s.run(tasks[i])
	}
	for round := range rounds {
		statuses, codes := s.reserveAtOnce(tasks, runs, workspace)
		winner := -1
		for i, status := range statuses {
			switch {
			case status == http.StatusOK && winner < 0:
				winner = i
			case status == http.StatusConflict && codes[i] == "remote_workspace_writer_pending":
			default:
				s.t.Fatalf("round %d, racer %d: %d %v", round, i, status, codes[i])
			}
		}
		if winner < 0 {
			s.t.Fatalf("round %d: nobody won", round)
		}
		authority := s.get(workspace)["authority"].(object)
		if authority["epoch"] != float64(4+round) || authority["writerRunId"] != runs[winner].id {
			s.t.Fatalf("round %d: %v, and %s won", round, authority, runs[winner].id)
		}
		status, answer := s.Do(http.MethodPost, "/api/execution-workspaces/"+workspace+"/release", runs[winner].token,
			object{"runId": runs[winner].id, "epoch": 4 + round})
		if status != http.StatusOK {
			s.t.Fatalf("release: %d %v", status, answer)
		}
	}
}

func (s *scene) reserveAtOnce(tasks []string, runs []writer, workspace string) (statuses []int, codes []any) {
	s.t.Helper()
	statuses, codes = make([]int, len(runs)), make([]any, len(runs))
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range runs {
		done.Go(func() {
			start.Wait()
			answer := object{}
			// An overloaded server asks to repeat, which must be safe.
			for statuses[i] = http.StatusServiceUnavailable; statuses[i] == http.StatusServiceUnavailable; {
				statuses[i], answer = s.reserve(tasks[i], runs[i], existing(workspace))
			}
			codes[i] = answer["code"]
		})
	}
	start.Done()
	done.Wait()
	return statuses, codes
}

func TestReserveRefusesAClosedWorkspace(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"archived", "cleanup_failed"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			parent, workspace := s.parent(nil)
			child := s.child(parent)
			by := s.run(child)
			s.Must(http.MethodPatch, "/api/execution-workspaces/"+workspace, object{"status": status})
			s.unchanged(workspace, func() {
				code, answer := s.reserve(child, by, existing(workspace))
				refused(t, code, answer, http.StatusConflict, "workspace_ownership_changed")
				if !strings.Contains(answer["detail"].(string), "Workspace ownership changed.") {
					t.Errorf("detail: %v", answer["detail"])
				}
			})
		})
	}
}

func TestReserveDoesNotKnowAnotherCompanysWorkspace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	_, foreign := s.parent(nil)
	s.join()
	parent, own := s.parent(nil)
	child := s.child(parent)
	by := s.run(child)
	s.unchanged(foreign, func() {
		s.unchanged(own, func() {
			status, answer := s.reserve(child, by, existing(foreign))
			refused(t, status, answer, http.StatusNotFound, "remote_workspace_missing")
		})
	})
}
