-- name: LockIdempotencyKey :exec
-- Those who come with one key at once go one after the other, to the end of their
-- transactions; what the first one stored is then seen by the next statement of the
-- others. A collision of two keys' hashes only lets them wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended(@name::text, 0));

-- name: DropOldAnswer :execrows
-- Frees a key whose answer is older than a day. Zero rows: there is none.
DELETE FROM idempotency_keys
WHERE principal = @principal AND company_id IS NOT DISTINCT FROM sqlc.narg(company_id)::uuid AND key = @key
  AND created_at < clock_timestamp() - interval '1 day';

-- name: GetAnswer :one
SELECT digest, answer
FROM idempotency_keys
WHERE principal = @principal AND company_id IS NOT DISTINCT FROM sqlc.narg(company_id)::uuid AND key = @key;

-- name: RecordAnswer :exec
-- The key is locked, so nobody has put another answer there meanwhile.
INSERT INTO idempotency_keys (principal, company_id, key, digest, answer)
VALUES (@principal, sqlc.narg(company_id)::uuid, @key, @digest, @answer);

-- name: DropOldAnswers :execrows
-- What nobody can ask for any more, a batch at a time. now() and not the clock, so that
-- the index by age is used. Zero rows: nothing is left.
DELETE FROM idempotency_keys
WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM idempotency_keys k WHERE k.created_at < now() - interval '1 day' ORDER BY k.created_at LIMIT 1000));
