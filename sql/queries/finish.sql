-- name: LockRun :one
SELECT * FROM heartbeat_runs WHERE company_id = @company_id AND id = @run_id FOR UPDATE;

-- name: ShareLockRun :one
-- Zero rows: no such run in the company.
SELECT * FROM heartbeat_runs WHERE company_id = @company_id AND id = @run_id FOR SHARE;

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
