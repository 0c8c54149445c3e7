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

-- name: NameSnapshot :one
-- A named snapshot keeps its bytes. Two that want one name: the second is refused by
-- snapshots_name_once. Zero rows: no such snapshot, or it was abandoned.
UPDATE snapshots
SET name = sqlc.narg(name)
WHERE company_id = @company_id AND workspace_id = @workspace_id AND id = @snapshot_id AND state <> 'abandoned'
RETURNING *;

-- name: AbandonSnapshots :many
-- Saves that nobody finished in a day. A commit that comes at the same moment flips the
-- row first or finds it abandoned.
UPDATE snapshots
SET state = 'abandoned'
WHERE id IN (
    SELECT s.id FROM snapshots s
    WHERE s.state = 'pending' AND s.created_at < clock_timestamp() - interval '1 day'
    ORDER BY s.created_at
    LIMIT @most
    FOR UPDATE SKIP LOCKED)
  AND state = 'pending'
RETURNING location_key;

-- name: ExpireSnapshots :many
-- Saved states beyond the newest that are kept of each workspace, but for the current and
-- the named ones. One that is named at this moment is locked, and keeps its bytes.
UPDATE snapshots
SET state = 'unavailable'
WHERE id IN (
    SELECT s.id FROM snapshots s
    JOIN (
        SELECT r.id, row_number() OVER (PARTITION BY r.workspace_id ORDER BY r.created_at DESC, r.id DESC) AS place
        FROM snapshots r WHERE r.state = 'committed' AND r.name IS NULL
    ) ranked ON ranked.id = s.id
    JOIN execution_workspaces w ON w.id = s.workspace_id
    WHERE ranked.place > @keep::bigint AND w.snapshot_id IS DISTINCT FROM s.id
    ORDER BY s.created_at
    LIMIT @most
    FOR UPDATE OF s SKIP LOCKED)
  AND state = 'committed' AND name IS NULL
RETURNING location_key;

-- name: ListNeededKeys :many
-- Of these objects of the store, those that belong to a snapshot that has, or is about to
-- have, its bytes.
SELECT s.location_key::text AS location_key FROM snapshots s
WHERE s.location_key = ANY (@keys::text[]) AND s.state IN ('pending', 'committed');
