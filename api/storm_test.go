package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/api/apitest"
)

// inParallel does something for each number below n, so many at once.
func inParallel(n, atOnce int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// asOwner runs a statement as the owner of the schema does in a migration.
func (s *scene) asOwner(statement string) {
	s.t.Helper()
	owner, err := pgx.Connect(s.t.Context(), s.Database.OwnerURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer owner.Close(context.WithoutCancel(s.t.Context())) //nolint:errcheck // its statement was answered
	if _, err := owner.Exec(s.t.Context(), statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// tenure is one run's whole life with a workspace, as far as it gets: whoever is refused ends sooner.
func (s *scene) tenure(issue string, w writer, disturb bool) {
	post := func(path, token string, body object) (apitest.Reply, bool) {
		reply := soon(s.t, path, func() apitest.Reply {
			return s.Send(apitest.Request{Method: http.MethodPost, Path: path, Token: token, Body: body})
		})
		return reply, reply.Status == http.StatusOK
	}
	if reply, ok := post("/api/issues/"+issue+"/workspace/reservation", w.token, object{"runId": w.id}); ok {
		workspace := reply.JSON()["workspace"].(object)
		path := "/api/execution-workspaces/" + workspace["id"].(string)
		claim := object{"runId": w.id, "epoch": workspace["authority"].(object)["epoch"]}
		post(path+"/renew", w.token, claim)
		post(path+"/dirty", w.token, claim)
		if disturb {
			post(path+"/takeover", s.OperatorToken, object{"reason": "storm", "acceptRisk": true})
		}
		post(path+"/release", w.token, with(claim, "discard", true))
	}
	soon(s.t, "finish", func() apitest.Reply {
		return s.Send(apitest.Request{
			Method: http.MethodPatch, Path: "/api/heartbeat-runs/" + w.id, Token: w.token,
			Body: object{"status": "succeeded", "discard": true},
		})
	})
}

func TestAStormOnFiveWorkspacesEndsInAnswers(t *testing.T) {
	t.Parallel()
	const workspaces, callers = 5, 400
	s := newScene(t)
	var issues, trees [workspaces]string
	for i := range issues {
		issues[i], trees[i] = s.parent(nil)
	}
	var runs [callers]writer
	inParallel(callers, 16, func(i int) { runs[i] = s.run(issues[i%workspaces]) })
	inParallel(callers, callers, func(i int) { s.tenure(issues[i%workspaces], runs[i], i%7 == 0) })
	for i, tree := range trees {
		if authority := s.get(tree)["authority"].(object); authority["writerRunId"] != nil || authority["dirty"] != false {
			t.Errorf("workspace %d is left as %v", i, authority)
		}
		if tenures := s.Must(http.MethodGet, "/api/execution-workspaces/"+tree+"/tenures", nil)["items"].([]any); len(tenures) == 0 {
			t.Errorf("nobody got workspace %d", i)
		}
	}
}

// metric is the value of a series without labels.
func (s *scene) metric(name string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, found := bytes.Cut(text, []byte("\n"+name+" "))
	value, _, _ := bytes.Cut(after, []byte("\n"))
	n, err := strconv.Atoi(string(value))
	if !found || err != nil {
		s.t.Fatalf("no metric %s: %v", name, err)
	}
	return n
}

func TestRetriesAreCountedAndTheLastIsAnsweredWith503(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	issue, workspace := s.parent(nil)
	w := s.run(issue)
	s.asOwner(`CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure'; END; $$`)
	s.asOwner(`CREATE TRIGGER conflict BEFORE INSERT ON tenures FOR EACH ROW EXECUTE FUNCTION conflict()`)
	before := s.metric("berth_database_retries_total")
	reply := s.Send(apitest.Request{
		Method: http.MethodPost, Path: "/api/issues/" + issue + "/workspace/reservation", Token: w.token, Body: object{"runId": w.id},
	})
	if reply.Status != http.StatusServiceUnavailable || reply.Header.Get("Retry-After") == "" {
		t.Errorf("after the last retry: %d %s", reply.Status, reply.Body)
	}
	if counted := s.metric("berth_database_retries_total") - before; counted < 3 { // other tests have theirs
		t.Errorf("%d retries were counted", counted)
	}
	if epoch := s.get(workspace)["authority"].(object)["epoch"]; epoch != 3.0 {
		t.Errorf("what was rolled back moved the epoch to %v", epoch)
	}
	s.asOwner("DROP TRIGGER conflict ON tenures")
	if status, answer := s.reserve(issue, w, nil); status != http.StatusOK {
		t.Errorf("the same call again: %d %v", status, answer)
	}
}

// The migrations of a newer version add columns while this one serves.
func TestAColumnAddedUnderLoadFailsNoCall(t *testing.T) {
	t.Parallel()
	const clients = 16
	s := newScene(t)
	var issues [clients]string
	var runs [clients]writer
	inParallel(clients, 4, func(i int) {
		issues[i], _ = s.parent(nil)
		runs[i] = s.run(issues[i])
	})
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var cycles atomic.Int64
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			for ctx.Err() == nil {
				s.cycle(t, issues[i], runs[i])
				cycles.Add(1)
			}
		})
	}
	for _, table := range []string{"execution_workspaces", "heartbeat_runs", "tenures", "issues", "events", "companies", "agents", "environment_leases"} {
		seen := cycles.Load()
		s.asOwner(fmt.Sprintf("ALTER TABLE %s ADD COLUMN of_a_newer_version text NOT NULL DEFAULT ''", table))
		awaitMore(t, &cycles, seen+clients)
	}
	enough()
	working.Wait()
}

// cycle reserves, renews, looks at and releases a workspace; each call has to succeed.
func (s *scene) cycle(t *testing.T, issue string, w writer) {
	status, answer := s.reserve(issue, w, nil)
	if status != http.StatusOK {
		t.Errorf("reserve: %d %v", status, answer)
		return
	}
	workspace := answer["workspace"].(object)
	path := "/api/execution-workspaces/" + workspace["id"].(string)
	claim := object{"runId": w.id, "epoch": workspace["authority"].(object)["epoch"]}
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, path + "/renew", claim},
		{http.MethodGet, path, nil},
		{http.MethodGet, path + "/tenures", nil},
		{http.MethodGet, path + "/events", nil},
		{http.MethodPost, path + "/release", claim},
	} {
		if status, answer := s.Do(call.method, call.path, w.token, call.body); status != http.StatusOK {
			t.Errorf("%s %s: %d %v", call.method, call.path, status, answer)
		}
	}
}

func awaitMore(t *testing.T, counter *atomic.Int64, want int64) {
	t.Helper()
	deadline := time.After(time.Minute)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for counter.Load() < want {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("%d of %d cycles within a minute", counter.Load(), want)
		}
	}
}

// Only the database's clock decides, so what a client thinks that the time is changes nothing.
func TestAClientsClockChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		issue, workspace := s.parent(nil)
		w := s.run(issue)
		call := func(path string, body object) object {
			t.Helper()
			reply := s.Send(apitest.Request{
				Method: http.MethodPost, Path: path, Token: w.token, Body: body,
				Header: http.Header{"Date": {time.Now().Add(off).UTC().Format(http.TimeFormat)}},
			})
			if reply.Status != http.StatusOK {
				t.Fatalf("%s with a clock %s off: %d %s", path, off, reply.Status, reply.Body)
			}
			return reply.JSON()
		}
		began := s.databaseTime()
		call("/api/issues/"+issue+"/workspace/reservation", object{"runId": w.id})
		claim, path := object{"runId": w.id, "epoch": 4}, "/api/execution-workspaces/"+workspace
		renewed := call(path+"/renew", claim)["lastRenewedAt"].(string)
		call(path+"/release", claim)
		ended := s.databaseTime()
		tenure := s.Must(http.MethodGet, path+"/tenures", nil)["items"].([]any)[0].(object)
		for what, at := range map[string]string{
			"renewed": renewed, "started": tenure["startedAt"].(string), "ended": tenure["endedAt"].(string),
		} {
			if parsed, err := time.Parse(time.RFC3339Nano, at); err != nil || parsed.Before(began) || parsed.After(ended) {
				t.Errorf("with a clock %s off: %s at %s, which is not between %s and %s", off, what, at, began, ended)
			}
		}
	}
}

func (s *scene) databaseTime() (now time.Time) {
	s.t.Helper()
	if err := s.Database.Pool.QueryRow(s.t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		s.t.Fatal(err)
	}
	return now
}
