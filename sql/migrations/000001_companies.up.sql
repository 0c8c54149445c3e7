-- Companies are the tenants. Everything but environments, instance settings and
-- operator tokens belongs to exactly one, and every reference between tenants'
-- rows carries the company id, so that the database refuses a foreign one.

CREATE TABLE companies (
    id            uuid PRIMARY KEY,
    name          text NOT NULL,
    issue_prefix  text NOT NULL,
    issue_counter bigint NOT NULL DEFAULT 0,
    status        text NOT NULL DEFAULT 'active',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT companies_issue_prefix_key UNIQUE (issue_prefix),
    CONSTRAINT companies_issue_prefix_form CHECK (issue_prefix ~ '^[A-Z][A-Z0-9]{0,9}$'),
    CONSTRAINT companies_issue_counter_bounds CHECK (issue_counter >= 0),
    CONSTRAINT companies_status CHECK (status IN ('active', 'paused', 'archived'))
);

-- One row for the whole instance; the boolean key leaves no room for a second.
CREATE TABLE instance_settings (
    singleton                  boolean PRIMARY KEY DEFAULT true,
    enable_isolated_workspaces boolean NOT NULL DEFAULT false,
    store_marker               uuid,
    updated_at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT instance_settings_singleton CHECK (singleton)
);
COMMENT ON COLUMN instance_settings.store_marker IS
    'The id that the snapshot store must carry: a server whose store lacks it is not ready.';

INSERT INTO instance_settings DEFAULT VALUES;

-- History is never changed or removed. Grants keep the service from it; this
-- trigger keeps the owner's slip of the hand from it.
--
-- This and every other trigger function looks into the schema public first, whatever the
-- session's path: a temporary table of the same name would lead a guard astray.
CREATE FUNCTION refuse_history_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: its rows are history', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_TABLE_NAME || '_append_only';
END;
$$;
