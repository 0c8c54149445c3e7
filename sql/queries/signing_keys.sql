-- name: ListSigningKeys :many
-- Newest first. A retired key neither signs nor verifies.
SELECT id, private_key, created_at
FROM signing_keys
WHERE algorithm = 'EdDSA' AND retired_at IS NULL
ORDER BY created_at DESC, id DESC;

-- name: LockSigningKeys :exec
-- Servers that all find no key make one, one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('signing_keys', 0));

-- name: CreateSigningKey :exec
INSERT INTO signing_keys (id, algorithm, private_key) VALUES (@id, 'EdDSA', @private_key);
