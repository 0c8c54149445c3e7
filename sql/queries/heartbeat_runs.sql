-- name: InsertRun :one
-- A run that is recorded as ended, by an import, ended now as far as this database knows.
INSERT INTO heartbeat_runs (id, company_id, agent_id, issue_id, status, runtime_mode, context_snapshot, started_at,
    finished_at, finished_by)
VALUES (@id, @company_id, @agent_id, @issue_id, @status, @runtime_mode, @context_snapshot,
    CASE WHEN @status = 'running' THEN clock_timestamp() END,
    CASE WHEN @ended::boolean THEN clock_timestamp() END,
    CASE WHEN @ended::boolean THEN @actor::text END)
RETURNING *;

-- name: GetRun :one
SELECT * FROM heartbeat_runs WHERE id = @id;

-- name: ListRuns :many
SELECT r.* FROM heartbeat_runs r
WHERE r.company_id = @company_id
  AND (sqlc.narg(agent_id)::uuid IS NULL OR r.agent_id = sqlc.narg(agent_id)::uuid)
  AND (sqlc.narg(issue_id)::uuid IS NULL OR r.bound_issue_id = sqlc.narg(issue_id)::uuid)
  AND (sqlc.narg(status)::text IS NULL OR r.status = sqlc.narg(status)::text)
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (r.created_at, r.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
  AND (r.bound_issue_id IS NULL OR r.id = @own_run_id
       OR principal_reads_issue(r.company_id, r.bound_issue_id, @reader_type, @reader_id))
ORDER BY r.created_at, r.id
LIMIT @rows;

-- name: LockRun :one
SELECT * FROM heartbeat_runs WHERE company_id = @company_id AND id = @run_id FOR UPDATE;

-- name: ShareLockRun :one
-- Zero rows: no such run in the company.
SELECT * FROM heartbeat_runs WHERE company_id = @company_id AND id = @run_id FOR SHARE;

-- name: ShareLockTaskOfRun :one
-- The task of a run, whose binding stays as it is until the commit. Zero rows: the run is
-- for no task that there is.
SELECT i.id FROM issues i
WHERE i.company_id = @company_id AND i.id = (SELECT r.bound_issue_id FROM heartbeat_runs r WHERE r.company_id = @company_id AND r.id = @run_id)
FOR SHARE OF i;

-- name: FinishRun :one
-- A terminal status is final. Zero rows: the run has one.
UPDATE heartbeat_runs
SET status = @status, finished_at = clock_timestamp(), finished_by = @finished_by::text, updated_at = clock_timestamp()
WHERE company_id = @company_id AND id = @run_id AND finished_at IS NULL
RETURNING *;

-- name: StartRun :one
-- Zero rows: the run is not waiting to start.
UPDATE heartbeat_runs
SET status = 'running', started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
WHERE company_id = @company_id AND id = @run_id AND status IN ('queued', 'scheduled_retry')
RETURNING *;
