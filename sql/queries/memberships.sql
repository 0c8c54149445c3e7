-- name: PutMembership :one
-- A principal has one membership of a company: putting it again changes that one.
INSERT INTO company_memberships (id, company_id, principal_type, principal_id, status, membership_role)
VALUES (@id, @company_id, @principal_type, @principal_id, @status, @membership_role)
ON CONFLICT ON CONSTRAINT company_memberships_principal_key DO UPDATE
SET status = excluded.status, membership_role = excluded.membership_role, updated_at = clock_timestamp()
RETURNING *;

-- name: ListMemberships :many
SELECT m.* FROM company_memberships m
WHERE m.company_id = @company_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (m.created_at, m.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY m.created_at, m.id
LIMIT @rows;

-- name: InsertGrant :one
INSERT INTO permission_grants (id, company_id, principal_type, principal_id, permission_key, scope)
VALUES (@id, @company_id, @principal_type, @principal_id, @permission_key, @scope)
RETURNING *;

-- name: ListGrants :many
SELECT g.* FROM permission_grants g
WHERE g.company_id = @company_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (g.created_at, g.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY g.created_at, g.id
LIMIT @rows;

-- name: ListGrantsOfPrincipal :many
SELECT * FROM permission_grants
WHERE company_id = @company_id AND principal_type = @principal_type AND principal_id = @principal_id;
