-- name: InsertEvent :one
-- For what no row of another table tells by its trigger.
INSERT INTO events (company_id, kind, workspace_id, issue_id, run_id, epoch, actor, data)
VALUES (@company_id, @kind, @workspace_id, @issue_id, @run_id, @epoch, @actor, @data)
RETURNING id;

-- name: ListEventsByWorkspace :many
-- Newest first, from the index: without a place to go on from, from the newest there can be.
SELECT e.* FROM events e
WHERE e.company_id = @company_id AND e.workspace_id = @workspace_id::uuid
  AND e.id < coalesce(sqlc.narg(before_id)::bigint, 9223372036854775807)
ORDER BY e.id DESC
LIMIT @rows;
