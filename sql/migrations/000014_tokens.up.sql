-- Operator tokens: opaque, and stored only as a hash. A member token speaks for one
-- user, within that user's memberships.
CREATE TABLE tokens (
    id           uuid PRIMARY KEY,
    name         text NOT NULL,
    secret_hash  bytea NOT NULL,
    role         text NOT NULL,
    user_id      uuid,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    CONSTRAINT tokens_secret_hash_key UNIQUE (secret_hash),
    CONSTRAINT tokens_secret_hash_form CHECK (octet_length(secret_hash) = 32),
    CONSTRAINT tokens_role CHECK (role IN ('operator', 'member', 'auditor')),
    CONSTRAINT tokens_member_has_user CHECK (role <> 'member' OR user_id IS NOT NULL)
);

CREATE INDEX tokens_by_age ON tokens (created_at, id);

-- Run tokens are signed with the newest key; older ones still verify.
CREATE TABLE signing_keys (
    id          uuid PRIMARY KEY,
    algorithm   text NOT NULL,
    private_key bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at  timestamptz,
    CONSTRAINT signing_keys_algorithm CHECK (algorithm = 'EdDSA')
);
