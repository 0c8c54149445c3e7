-- name: OpenTenure :one
-- A tenure begins for the writer that the workspace row names now, never before the end
-- of the one before it. Zero rows: the run is not the writer at that epoch.
INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, issue_id, started_at, started_by, handover,
                     reservation_principal, reservation_key, reservation_digest)
SELECT @id, w.company_id, w.id, w.epoch, @run_id::uuid, sqlc.narg(issue_id)::uuid,
       greatest(clock_timestamp(),
                (SELECT t.ended_at FROM tenures t WHERE t.workspace_id = w.id ORDER BY t.epoch DESC LIMIT 1)),
       @started_by, sqlc.narg(handover)::jsonb,
       sqlc.narg(reservation_principal)::text, sqlc.narg(reservation_key)::text, sqlc.narg(reservation_digest)::bytea
FROM execution_workspaces w
WHERE w.company_id = @company_id AND w.id = @workspace_id AND w.epoch = @epoch AND w.writer_run_id = @run_id::uuid
RETURNING *;

-- name: CloseTenure :one
-- Closed once. Zero rows: another transaction closed it; nothing may then be claimed.
UPDATE tenures
SET ended_at = greatest(clock_timestamp(), started_at + interval '1 microsecond'),
    ended_how = @ended_how::text,
    ended_by = @ended_by::text,
    ended_reason = sqlc.narg(ended_reason),
    unsaved_work = @unsaved_work,
    unproven = @unproven,
    proof = sqlc.narg(proof)
WHERE company_id = @company_id AND workspace_id = @workspace_id AND epoch = @epoch AND run_id = @run_id
  AND ended_at IS NULL
RETURNING *;

-- name: LockHeldWorkspace :one
-- What the fenced write of a tenure rests on. Zero rows: the run is not the writer at
-- that epoch, now.
SELECT * FROM execution_workspaces
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND writer_run_id = @run_id::uuid
FOR UPDATE;

-- name: LockRunningRun :one
-- A run that ended writes no more. Zero rows: it is not running.
SELECT * FROM heartbeat_runs
WHERE company_id = @company_id AND id = @run_id AND status = 'running'
FOR SHARE;

-- name: RenewTenure :one
-- The workspace row is locked and tested first, then the run's: both hold at commit. An
-- open request to stop goes with the answer. Zero rows: not the writer at that epoch, or
-- not running.
WITH held AS (
    SELECT w.writer_run_id FROM execution_workspaces w
    WHERE w.company_id = @company_id AND w.id = @workspace_id AND w.epoch = @epoch AND w.writer_run_id = @run_id::uuid
    FOR SHARE
), renewed AS (
    UPDATE heartbeat_runs r
    SET last_renewed_at = clock_timestamp()
    FROM held
    WHERE r.company_id = @company_id AND r.id = held.writer_run_id AND r.status = 'running'
    RETURNING r.last_renewed_at
)
SELECT renewed.last_renewed_at, asked.reason AS stop_reason, asked.deadline AS stop_deadline
FROM renewed
LEFT JOIN stop_requests asked
    ON asked.workspace_id = @workspace_id AND asked.epoch = @epoch AND asked.settled_at IS NULL;

-- name: RenewTenures :many
-- What many writers ask for at once, as RenewTenure does it for one. A workspace or a run
-- that another transaction has locked is left out instead of waited for: one writer must
-- not hold up the rest. The arrays belong together; place is where in them an answered
-- renewal stands, from 1. One that is not answered was left out or is refused, which
-- RenewTenure finds out.
WITH asked AS (
    SELECT unnest(@company_ids::uuid[]) AS company_id, unnest(@workspace_ids::uuid[]) AS workspace_id,
           unnest(@run_ids::uuid[]) AS run_id, unnest(@epochs::bigint[]) AS epoch,
           generate_subscripts(@epochs::bigint[], 1)::bigint AS place
), held AS (
    SELECT asked.place, w.company_id, w.id, w.epoch, w.writer_run_id
    FROM asked
    JOIN execution_workspaces w ON w.id = asked.workspace_id
    WHERE w.company_id = asked.company_id AND w.epoch = asked.epoch AND w.writer_run_id = asked.run_id
    FOR SHARE OF w SKIP LOCKED
), running AS (
    SELECT held.place, held.id AS workspace_id, held.epoch, r.id
    FROM held
    JOIN heartbeat_runs r ON r.id = held.writer_run_id
    WHERE r.company_id = held.company_id AND r.status = 'running'
    FOR NO KEY UPDATE OF r SKIP LOCKED
), renewed AS (
    UPDATE heartbeat_runs r
    SET last_renewed_at = clock_timestamp()
    FROM running
    WHERE r.id = running.id
    RETURNING r.id, r.last_renewed_at
)
SELECT running.place, renewed.last_renewed_at, request.reason AS stop_reason, request.deadline AS stop_deadline
FROM renewed
JOIN running ON running.id = renewed.id
LEFT JOIN stop_requests request
    ON request.workspace_id = running.workspace_id AND request.epoch = running.epoch AND request.settled_at IS NULL;

-- name: GetTenureOfFence :one
-- What became of the tenure that a refused fenced write speaks of.
SELECT t.*, r.status AS run_status, r.finished_at AS run_finished_at, r.finished_by AS run_finished_by
FROM tenures t
JOIN heartbeat_runs r ON r.id = t.run_id
WHERE t.company_id = @company_id AND t.workspace_id = @workspace_id AND t.epoch = @epoch AND t.run_id = @run_id;

-- name: MarkWorkspaceDirty :one
-- Zero rows: the epoch is over.
UPDATE execution_workspaces
SET dirty = true, dirty_marks = dirty_marks + 1
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND writer_run_id = @run_id::uuid
RETURNING *;

-- name: SetWorkspaceLocation :one
-- Zero rows: the epoch is over.
UPDATE execution_workspaces
SET location = sqlc.narg(location)
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND writer_run_id = @run_id::uuid
RETURNING *;

-- name: ReleaseWorkspace :one
-- Work that came after the caller last looked is not given up unknowingly: a release
-- without discard finds no dirty workspace. Zero rows: the epoch is over, or it is dirty.
UPDATE execution_workspaces
SET writer_run_id = NULL, location = NULL, dirty = false
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND writer_run_id = @run_id::uuid
  AND (NOT dirty OR @discard::boolean)
RETURNING *;

-- name: TakeOverWorkspace :one
-- The old epoch is dead with this statement. Zero rows: the tenure ended meanwhile.
UPDATE execution_workspaces
SET epoch = epoch + 1, writer_run_id = NULL, location = NULL, dirty = false
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND writer_run_id = @run_id::uuid
RETURNING *;

-- name: ListTenuresByWorkspace :many
-- Newest first, from the index: without a place to go on from, from the newest there can be.
SELECT t.* FROM tenures t
WHERE t.company_id = @company_id AND t.workspace_id = @workspace_id
  AND t.epoch < coalesce(sqlc.narg(before_epoch)::bigint, 9223372036854775807)
ORDER BY t.epoch DESC
LIMIT @rows;

-- name: HasHeldWorkspace :one
-- Whether the run is or was the writer of the workspace.
SELECT EXISTS (
    SELECT FROM tenures t
    WHERE t.company_id = @company_id AND t.workspace_id = @workspace_id AND t.run_id = @run_id);
