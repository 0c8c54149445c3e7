-- name: InsertSnapshot :one
INSERT INTO snapshots (id, company_id, workspace_id, epoch, run_id, parent_snapshot_id, state, location_provider,
    location_key, size, file_count, sha256, name, dirty_marks, created_by, committed_at)
VALUES (@id, @company_id, @workspace_id, @epoch, @run_id, @parent_snapshot_id, @state, @location_provider,
    @location_key, @size, @file_count, @sha256, @name, @dirty_marks, @created_by,
    CASE WHEN @state = 'committed' THEN clock_timestamp() END)
RETURNING *;

-- name: GetSnapshot :one
SELECT * FROM snapshots WHERE company_id = @company_id AND workspace_id = @workspace_id AND id = @snapshot_id;

-- name: LockSnapshot :one
SELECT * FROM snapshots
WHERE company_id = @company_id AND workspace_id = @workspace_id AND id = @snapshot_id
FOR UPDATE;

-- name: CommitSnapshot :one
-- Two commits of one snapshot, or a commit and the collector: one flips it. Zero rows: it
-- is no longer pending.
UPDATE snapshots
SET state = 'committed', committed_at = clock_timestamp()
WHERE company_id = @company_id AND id = @snapshot_id AND state = 'pending'
RETURNING *;

-- name: AdoptSnapshot :one
-- The document names the new saved state. It stays dirty when the writer announced
-- further changes after the snapshot was begun. Zero rows: the epoch is over, or another
-- save came between.
UPDATE execution_workspaces
SET snapshot_id = @snapshot_id::uuid, dirty = dirty AND dirty_marks <> @dirty_marks
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND writer_run_id = @run_id::uuid
  AND snapshot_id IS NOT DISTINCT FROM sqlc.narg(parent_snapshot_id)
RETURNING *;

-- name: FillSnapshot :one
-- An imported snapshot takes its bytes once. Zero rows: it has them.
UPDATE snapshots
SET state = 'committed', committed_at = clock_timestamp(), location_provider = @location_provider::text,
    location_key = @location_key::text, size = @size::bigint, file_count = @file_count::bigint, sha256 = @sha256::text
WHERE company_id = @company_id AND id = @snapshot_id AND state = 'unavailable'
RETURNING *;

-- name: ListSnapshots :many
SELECT s.* FROM snapshots s
WHERE s.company_id = @company_id AND s.workspace_id = @workspace_id
  AND (sqlc.narg(before_at)::timestamptz IS NULL
       OR (s.created_at, s.id) < (sqlc.narg(before_at)::timestamptz, sqlc.narg(before_id)::uuid))
ORDER BY s.created_at DESC, s.id DESC
LIMIT @rows;
