-- The first answer of a create, kept for a day under the caller's key. A caller's keys
-- in one company are not its keys in another.
CREATE TABLE idempotency_keys (
    principal  text NOT NULL,
    company_id uuid REFERENCES companies (id),
    key        text NOT NULL,
    digest     bytea NOT NULL,
    answer     jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idempotency_keys_once UNIQUE NULLS NOT DISTINCT (principal, company_id, key)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
