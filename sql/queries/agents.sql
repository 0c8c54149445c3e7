-- name: InsertAgent :one
INSERT INTO agents (id, company_id, name, adapter_type, status, reports_to_agent_id)
VALUES (@id, @company_id, @name, @adapter_type, @status, sqlc.narg(reports_to_agent_id)::uuid)
RETURNING *;

-- name: ListAgents :many
SELECT a.* FROM agents a
WHERE a.company_id = @company_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (a.created_at, a.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY a.created_at, a.id
LIMIT @rows;
