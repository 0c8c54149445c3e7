-- name: CreateToken :one
-- Zero rows: the expiry is not in the future, by the database's clock.
INSERT INTO tokens (id, name, secret_hash, role, user_id, created_by, expires_at)
SELECT @id, @name, @secret_hash, @role, sqlc.narg(user_id)::uuid, @created_by, sqlc.narg(expires_at)::timestamptz
WHERE sqlc.narg(expires_at)::timestamptz IS NULL OR sqlc.narg(expires_at)::timestamptz > clock_timestamp()
RETURNING *;

-- name: EnsureToken :one
-- The token of a secret, made if there is none. Servers that start together with one
-- secret meet in the unique hash, and all get the same row.
INSERT INTO tokens (id, name, secret_hash, role, created_by)
VALUES (@id, @name, @secret_hash, @role, @created_by)
ON CONFLICT ON CONSTRAINT tokens_secret_hash_key DO UPDATE SET name = tokens.name
RETURNING *, (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()))::boolean AS usable;

-- name: GetUsableTokenByHash :one
-- No row: unknown, revoked or expired, by the database's clock.
SELECT id, role, user_id,
       (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute')::boolean AS note_use
FROM tokens
WHERE secret_hash = @secret_hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());

-- name: NoteTokenUse :execrows
-- Once a minute is enough to see which tokens are alive. Zero rows: another call noted it.
UPDATE tokens SET last_used_at = clock_timestamp()
WHERE id = @id AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute');

-- name: ListTokens :many
SELECT t.* FROM tokens t
WHERE sqlc.narg(after_at)::timestamptz IS NULL
   OR (t.created_at, t.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid)
ORDER BY t.created_at, t.id
LIMIT @rows;

-- name: RevokeToken :execrows
-- Revoking twice keeps the first time. Zero rows: there is no such token.
UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = @id;
