-- name: InsertCompany :one
-- Zero rows: the prefix is taken, also by one that is being made at this moment.
INSERT INTO companies (id, name, issue_prefix)
VALUES (@id, @name, @issue_prefix)
ON CONFLICT ON CONSTRAINT companies_issue_prefix_key DO NOTHING
RETURNING *;

-- name: GetCompany :one
SELECT * FROM companies WHERE id = @id;

-- name: ListCompanies :many
SELECT c.* FROM companies c
WHERE (sqlc.narg(after_at)::timestamptz IS NULL
       OR (c.created_at, c.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
  AND (sqlc.narg(only_company_id)::uuid IS NULL OR c.id = sqlc.narg(only_company_id)::uuid)
  AND principal_reads_company(c.id, @reader_type, @reader_id, sqlc.narg(run_id)::uuid)
ORDER BY c.created_at, c.id
LIMIT @rows;

-- name: UpdateCompany :one
UPDATE companies
SET name = coalesce(sqlc.narg(name), name), status = coalesce(sqlc.narg(status), status), updated_at = clock_timestamp()
WHERE id = @id
RETURNING *;
