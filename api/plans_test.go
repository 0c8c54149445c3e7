package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db/dbtest"
)

// A statement without a fitting index is fast on a test's few rows and ruins an installation of years. So the steps of a
// tenure are taken in a company with a past, on a workspace with a past, and Postgres tells how many rows each table had
// to give for it: whatever statement, function, trigger or constraint they were for.
func TestTheCostOfATenureDoesNotGrowWithHistory(t *testing.T) {
	t.Parallel()
	dbtest.DirectOnly(t, "it counts at the end of the service's own sessions, and looks at plans that are kept")
	const past, enough = 5000, 1000
	s := newScene(t)
	workspace, sibling, ended, lease := endedWriter(s)
	next := s.run(sibling)
	s.live(past, workspace)
	path := "/api/execution-workspaces/" + workspace
	oldTenures, oldEvents := s.deepIn(path+"/tenures", past), s.deepIn(path+"/events", past)
	s.countReads()

	// A refusal, an explanation, the proof, a handover, a whole tenure and the next, and its history.
	status, answer := s.reserve(sibling, next, nil)
	refused(t, status, answer, http.StatusConflict, "remote_workspace_writer_pending")
	s.Must(http.MethodGet, "/api/issues/"+sibling+"/workspace/reservation?runId="+next.id, nil)
	s.Must(http.MethodPost, "/api/environment-leases/"+lease["id"].(string)+"/termination-receipts", object{
		"providerLeaseId": lease["providerLeaseId"], "state": "stopped", "kind": "recovery_cleanup", "runId": ended.id,
	})
	claim := func(extra object) object {
		body := object{"runId": next.id, "epoch": 5 + past}
		for name, value := range extra {
			body[name] = value
		}
		return body
	}
	steps := []struct {
		path string
		body object
	}{
		{"/api/issues/" + sibling + "/workspace/reservation", object{"runId": next.id}},
		{path + "/renew", claim(nil)},
		{path + "/dirty", claim(nil)},
		{path + "/location", claim(object{"location": object{"machine": "m"}})},
		{path + "/release", claim(object{"discard": true})},
		{"/api/issues/" + sibling + "/workspace/reservation", object{"runId": next.id}},
	}
	for _, step := range steps {
		if status, answer := s.Do(http.MethodPost, step.path, next.token, step.body); status != http.StatusOK {
			t.Fatalf("%s: %d %v", step.path, status, answer)
		}
	}
	s.finish(next, "succeeded", next.token)
	for _, look := range []string{path, path + "/tenures", path + "/events", path + "/snapshots", oldTenures, oldEvents} {
		s.Must(http.MethodGet, look, nil)
	}

	for table, rows := range s.reads() {
		if rows > enough {
			t.Errorf("%s gave %d rows, and one tenure needs fewer than %d: is an index missing?", table, rows, enough)
		}
	}
}

// deepIn is the path of the list's part that comes after most of so many items.
func (s *scene) deepIn(list string, items int) string {
	s.t.Helper()
	const most = 200
	path := fmt.Sprintf("%s?limit=%d", list, most)
	next := path
	for range items * 9 / 10 / most {
		cursor, more := s.Must(http.MethodGet, next, nil)["nextCursor"].(string)
		if !more {
			s.t.Fatalf("%s ends too soon", list)
		}
		next = path + "&cursor=" + url.QueryEscape(cursor)
	}
	return next
}

// live gives the company so many more tasks, each with a workspace, a run, a machine that stopped, a tenure, and what is
// told of it; and the workspace as many earlier tenures and events of its own, so that its epoch is higher by as much. No
// trigger runs for these rows: they are as if they had been written long ago.
func (s *scene) live(rows int, workspace string) {
	s.t.Helper()
	s.asAdmin(func(admin *pgx.Conn) error {
		_, err := admin.Exec(s.t.Context(), fmt.Sprintf(longHistory, rows, s.company, s.agent, s.project, s.environment, workspace))
		return err
	})
}

// longHistory takes how many, and the company, agent, project, environment and workspace.
const longHistory = `
SET session_replication_role = replica;
CREATE TEMP TABLE past AS
SELECT n, timestamptz '2020-01-01' + n * interval '1 minute' AS at,
       gen_random_uuid() AS issue, gen_random_uuid() AS workspace, gen_random_uuid() AS run, gen_random_uuid() AS lease,
       gen_random_uuid() AS snapshot, gen_random_uuid() AS tenure, gen_random_uuid() AS earlier
FROM generate_series(1, %[1]d) AS n;
INSERT INTO issues (id, company_id, issue_number, identifier, title, project_id, execution_workspace_id, assignee_agent_id, created_at)
SELECT issue, '%[2]s', 1000 + n, 'PAST-' || n, 'Past', '%[4]s', workspace, '%[3]s', at FROM past;
INSERT INTO execution_workspaces (id, company_id, project_id, source_issue_id, name, mode, strategy_type, provider_type, epoch, snapshot_id, created_at)
SELECT workspace, '%[2]s', '%[4]s', issue, 'Past', 'isolated_workspace', 'task_directory', 'cloud_sandbox', 1, snapshot, at FROM past;
INSERT INTO workspace_privacy_sources (company_id, workspace_id, issue_id) SELECT '%[2]s', workspace, issue FROM past;
INSERT INTO heartbeat_runs (id, company_id, agent_id, issue_id, status, started_at, finished_at, created_at)
SELECT run, '%[2]s', '%[3]s', issue, 'succeeded', at, at, at FROM past;
INSERT INTO snapshots (id, company_id, workspace_id, epoch, run_id, state, location_provider, location_key, size, file_count, sha256, created_by, created_at, committed_at)
SELECT snapshot, '%[2]s', workspace, 1, run, 'committed', 'file', 'past/' || n, 1, 1, repeat('0', 64), 'run:' || run, at, at FROM past;
INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, issue_id, provider, provider_lease_id, status, cleanup_status, acquired_at, released_at, created_at)
SELECT lease, '%[2]s', '%[5]s', run, issue, 'daytona', 'past-' || n, 'released', 'success', at, at, at FROM past;
INSERT INTO termination_receipts (id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by, confirmed_at)
SELECT gen_random_uuid(), '%[2]s', lease, run, 'daytona', 'past-' || n, 'stopped', 'termination', 'token', at FROM past;
UPDATE execution_workspaces SET epoch = epoch + %[1]d WHERE id = '%[6]s';
UPDATE tenures SET epoch = epoch + %[1]d WHERE workspace_id = '%[6]s';
INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, issue_id, started_at, started_by, ended_at, ended_how, ended_by)
SELECT tenure, '%[2]s'::uuid, workspace, 1, run, issue, at, 'run:' || run, at + interval '1 second', 'release', 'run:' || run FROM past
UNION ALL
SELECT earlier, '%[2]s', '%[6]s'::uuid, n, run, issue, at, 'run:' || run, at + interval '1 second', 'release', 'run:' || run FROM past;
INSERT INTO events (company_id, kind, workspace_id, issue_id, run_id, epoch, actor, at)
SELECT '%[2]s', 'tenure.started', id, issue, run, 1, 'run:' || run, at FROM past, LATERAL (VALUES (workspace), ('%[6]s'::uuid)) AS w (id);
INSERT INTO refusals (company_id, issue_id, workspace_id, run_id, epoch, code, actor, first_at, last_at)
SELECT '%[2]s', issue, '%[6]s', run, 1, 'stale_epoch', 'run:' || run, at, at FROM past;
RESET session_replication_role;
ANALYZE`

// countReads begins to count the rows that the service reads. Its plans are from here on made for any value of their
// parameters, as those of a busy service are.
func (s *scene) countReads() {
	s.t.Helper()
	s.endSessions()
	s.asAdmin(func(admin *pgx.Conn) error {
		database := pgx.Identifier{admin.Config().Database}.Sanitize()
		_, err := admin.Exec(s.t.Context(), "ALTER DATABASE "+database+" SET plan_cache_mode = force_generic_plan; SELECT pg_stat_reset()")
		return err
	})
}

// reads is how many rows and index entries were read since the counting began, by table.
func (s *scene) reads() map[string]int64 {
	s.t.Helper()
	s.endSessions()
	reads := map[string]int64{}
	s.asAdmin(func(admin *pgx.Conn) error {
		var table string
		var count int64
		rows, err := admin.Query(s.t.Context(), `
			SELECT t.relname, (t.seq_tup_read + coalesce(sum(i.idx_tup_read), 0))::bigint
			FROM pg_stat_user_tables t LEFT JOIN pg_stat_user_indexes i USING (relid)
			GROUP BY t.relid, t.relname, t.seq_tup_read`)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&table, &count}, func() error {
			reads[table] = count
			return nil
		})
		return err
	})
	return reads
}

// endSessions has the service connect anew, and waits until its sessions are gone: a session tells what it counted at
// its end.
func (s *scene) endSessions() {
	s.t.Helper()
	s.Database.Pool.Reset()
	s.asAdmin(func(admin *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		for {
			var sessions int
			err := admin.QueryRow(ctx, `
				SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&sessions)
			if err != nil || sessions == 0 {
				return err
			}
			<-poll.C
		}
	})
}

func (s *scene) asAdmin(do func(admin *pgx.Conn) error) {
	s.t.Helper()
	admin, err := pgx.Connect(s.t.Context(), s.Database.AdminURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(s.t.Context()))
	if err := do(admin); err != nil {
		s.t.Fatal(err)
	}
}
