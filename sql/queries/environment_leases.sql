-- The proof that a run stopped is the sum of its leases. A handover reads them under the
-- workspace's lock and the writer's; so every write of a lease locks first the workspace
-- that its run holds, then the run, then the lease, and no handover rests on leases that
-- are changing under it.

-- name: LockWorkspaceOfLeaseRun :one
-- Zero rows: the run holds no workspace.
SELECT id FROM execution_workspaces
WHERE company_id = @company_id AND writer_run_id = @run_id::uuid
FOR SHARE;

-- name: LockRunForLease :one
-- Zero rows: no such run in the company.
SELECT id FROM heartbeat_runs WHERE company_id = @company_id AND id = @run_id FOR NO KEY UPDATE;

-- name: LockLease :one
-- Zero rows: no such lease.
SELECT * FROM environment_leases WHERE id = @id FOR NO KEY UPDATE;

-- name: GetLease :one
SELECT * FROM environment_leases WHERE id = @id;

-- name: InsertLease :one
-- A lease that is recorded after its machine was released was acquired before that.
INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, issue_id, execution_workspace_id,
    provider, provider_lease_id, status, lease_policy, cleanup_status, failure_reason, release_pending,
    replaced_by_run_id, acquired_at, released_at, expires_at)
VALUES (@id, @company_id, @environment_id, @heartbeat_run_id, @issue_id, @execution_workspace_id,
    @provider, @provider_lease_id, @status, @lease_policy, @cleanup_status, @failure_reason, @release_pending,
    @replaced_by_run_id, least(clock_timestamp(), sqlc.narg(released_at)::timestamptz),
    sqlc.narg(released_at)::timestamptz, @expires_at)
RETURNING *;

-- name: WriteLease :one
-- On a row that LockLease holds. The lease's guard refuses a step back. Zero rows: the row
-- was not locked, which is our fault.
UPDATE environment_leases
SET issue_id = @issue_id,
    execution_workspace_id = @execution_workspace_id,
    status = @status,
    cleanup_status = @cleanup_status,
    failure_reason = @failure_reason,
    release_pending = @release_pending,
    replaced_by_run_id = @replaced_by_run_id,
    released_at = @released_at,
    expires_at = @expires_at,
    updated_at = clock_timestamp()
WHERE id = @id AND company_id = @company_id AND status = @from_status
RETURNING *;

-- name: ListLeases :many
SELECT l.* FROM environment_leases l
WHERE l.company_id = @company_id
  AND (sqlc.narg(heartbeat_run_id)::uuid IS NULL OR l.heartbeat_run_id = sqlc.narg(heartbeat_run_id)::uuid)
  AND (sqlc.narg(status)::text IS NULL OR l.status = sqlc.narg(status)::text)
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (l.created_at, l.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY l.created_at, l.id
LIMIT @rows;

-- name: IsEnvironmentKnown :one
SELECT EXISTS (SELECT FROM environments e WHERE e.id = @id);

-- name: IsWorkspaceInCompany :one
SELECT EXISTS (SELECT FROM execution_workspaces w WHERE w.company_id = @company_id AND w.id = @id);
