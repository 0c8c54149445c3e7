-- name: InsertEnvironment :one
INSERT INTO environments (id, name, driver, config, status)
VALUES (@id, @name, @driver, @config, @status)
RETURNING *;

-- name: GetEnvironment :one
SELECT * FROM environments WHERE id = @id;

-- name: ListEnvironments :many
SELECT e.* FROM environments e
WHERE sqlc.narg(after_at)::timestamptz IS NULL
   OR (e.created_at, e.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid)
ORDER BY e.created_at, e.id
LIMIT @rows;

-- name: UpdateEnvironment :one
UPDATE environments
SET name = coalesce(sqlc.narg(name), name),
    config = coalesce(sqlc.narg(config), config),
    status = coalesce(sqlc.narg(status), status),
    updated_at = clock_timestamp()
WHERE id = @id
RETURNING *;
