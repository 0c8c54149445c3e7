-- name: InsertEvent :one
-- For what no row of another table tells by its trigger.
INSERT INTO events (company_id, kind, workspace_id, issue_id, run_id, epoch, actor, data)
VALUES (@company_id, @kind, @workspace_id, @issue_id, @run_id, @epoch, @actor, @data)
RETURNING id;

-- name: ListEventsByWorkspace :many
SELECT e.* FROM events e
WHERE e.company_id = @company_id AND e.workspace_id = @workspace_id::uuid
  AND (sqlc.narg(before_id)::bigint IS NULL OR e.id < sqlc.narg(before_id)::bigint)
ORDER BY e.id DESC
LIMIT @rows;
