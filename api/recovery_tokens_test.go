package api_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"testing"

	"berth/api/apitest"
)

// left makes the estate's run end with unsaved work, on a machine that is proven stopped, and opens its recovery.
func (s *estate) left() (path, recovery string) {
	s.t.Helper()
	path = s.reserve()
	s.as(http.StatusOK, http.MethodPost, path+"/dirty", s.claim())
	s.Must(http.MethodPost, "/api/environment-leases/"+s.ids["leaseId"]+"/termination-receipts", map[string]any{
		"providerLeaseId": "sb-1", "state": "stopped", "kind": "recovery_cleanup",
	})
	s.Must(http.MethodPatch, "/api/heartbeat-runs/"+s.ids["runId"], map[string]any{"status": "interrupted"})
	opened := s.Must(http.MethodPost, path+"/recovery-tokens", map[string]any{"epoch": 1, "reason": "the host was lost"})
	return path, opened["token"].(string)
}

// The operations that a recovery token is for; it is refused by every other one that the document has or will have.
var recovers = []string{
	"getExecutionWorkspace", "listSnapshots", "getSnapshot", "downloadSnapshotContent", "createSnapshot",
	"uploadSnapshotContent", "commitSnapshot",
}

func TestARecoveryTokenSavesOneEndedWritersWorkAndDoesNothingElse(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	mine, theirs := addEstate(t, server), addEstate(t, server)
	path, token := mine.left()
	theirs.ids["snapshotId"] = theirs.savedState(theirs.reserve()).(string)
	mine.token = token
	content := []byte("what was left")
	mine.ids["snapshotId"] = mine.begin(path, mine.savedState(path), content)
	before := history(t, server)
	for _, op := range operations(t) {
		if op.Security == nil || len(*op.Security) == 0 {
			continue
		}
		for whose, there := range map[string]*estate{"its own company": mine, "another company": theirs} {
			if whose == "its own company" && slices.Contains(recovers, op.OperationID) {
				continue
			}
			reply := call(t, server, op, token, there.ids)
			if op.OperationID == "updateHeartbeatRun" { // to which a run's first status is no end
				reply = server.Send(apitest.Request{Method: op.method, Path: there.fill(op.path), Token: token, Body: map[string]any{"status": "failed"}})
			}
			if op.OperationID == "explainReservation" && reply.JSON()["code"] == "issue_not_found" {
				continue // which answers every verdict with 200, and tells a stranger the same
			}
			if refused := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}; !slices.Contains(refused, reply.Status) {
				t.Errorf("%s in %s answers a recovery token %d %.300s", op.OperationID, whose, reply.Status, reply.Body)
			}
		}
	}
	if after := history(t, server); after != before {
		t.Errorf("a recovery token did something:\n%s\nand before\n%s", after, before)
	}

	// And what it is for it does.
	one := path + "/snapshots/" + mine.ids["snapshotId"]
	if reply := mine.upload(path, mine.ids["snapshotId"], bytes.NewReader(content)); reply.Status != http.StatusOK {
		t.Fatalf("upload: %d %s", reply.Status, reply.Body)
	}
	mine.as(http.StatusOK, http.MethodPost, one+"/commit", mine.claim())
	for _, read := range []string{path, path + "/snapshots", one} {
		mine.as(http.StatusOK, http.MethodGet, read, nil)
	}
	if reply := server.Send(apitest.Request{Method: http.MethodGet, Path: one + "/content", Token: token}); !bytes.Equal(reply.Body, content) {
		t.Errorf("download: %d %s", reply.Status, reply.Body)
	}
	authority := mine.Must(http.MethodGet, path, nil)["authority"].(map[string]any)
	if authority["dirty"] != false || authority["snapshotId"] != mine.ids["snapshotId"] || authority["writerRunId"] != mine.ids["runId"] {
		t.Errorf("after the recovery the authority is %v", authority)
	}
}

// history is all that callers can bring about, in one text.
func history(t *testing.T, server *apitest.Server) string {
	t.Helper()
	var text string
	err := server.Database.Pool.QueryRow(context.Background(), `SELECT concat_ws(E'\n',
		(SELECT string_agg(w::text, E'\n' ORDER BY w.id) FROM execution_workspaces w),
		(SELECT string_agg(i::text, E'\n' ORDER BY i.id) FROM issues i),
		(SELECT string_agg(r::text, E'\n' ORDER BY r.id) FROM heartbeat_runs r),
		(SELECT string_agg(l::text, E'\n' ORDER BY l.id) FROM environment_leases l),
		(SELECT string_agg(p::text, E'\n' ORDER BY p.id) FROM projects p),
		(SELECT string_agg(e::text, E'\n' ORDER BY e.id) FROM environments e),
		(SELECT count(*) FROM events), (SELECT count(*) FROM snapshots), (SELECT count(*) FROM refusals), (SELECT count(*) FROM tokens))`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestARecoveryThatNeedsProofSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	s.as(http.StatusOK, http.MethodPost, path+"/dirty", s.claim())
	ask := func(body map[string]any) (int, map[string]any) {
		return s.Do(http.MethodPost, path+"/recovery-tokens", s.OperatorToken, body)
	}
	status, answer := ask(map[string]any{"epoch": 1})
	refused(t, status, answer, http.StatusConflict, "recovery_needs_stop")
	if details := answer["details"].(map[string]any); details["runStatus"] != "running" || details["runId"] != s.ids["runId"] {
		t.Errorf("of a running writer it is told %v", details)
	}
	s.Must(http.MethodPatch, "/api/heartbeat-runs/"+s.ids["runId"], map[string]any{"status": "failed"})
	status, answer = ask(map[string]any{"epoch": 1})
	refused(t, status, answer, http.StatusConflict, "recovery_needs_stop")
	missing := answer["details"].(map[string]any)["missingProof"].([]any)
	if len(missing) != 1 || missing[0].(map[string]any)["leaseId"] != s.ids["leaseId"] || missing[0].(map[string]any)["reason"] != "lease_active" {
		t.Errorf("what is missing is %v", missing)
	}
	status, answer = ask(map[string]any{"epoch": 2})
	refused(t, status, answer, http.StatusConflict, "stale_epoch")
	status, answer = ask(map[string]any{"epoch": 1, "acceptRisk": true})
	if status != http.StatusCreated || answer["riskAccepted"] != true || answer["runId"] != s.ids["runId"] || answer["epoch"] != float64(1) {
		t.Errorf("at a risk: %d %v", status, answer)
	}
}
