-- Where runs execute. Shared by the whole instance, so without a company.
CREATE TABLE environments (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    driver     text NOT NULL,
    config     jsonb NOT NULL DEFAULT '{}',
    status     text NOT NULL DEFAULT 'active',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT environments_driver CHECK (driver IN ('local', 'ssh', 'sandbox', 'plugin')),
    CONSTRAINT environments_config_object CHECK (jsonb_typeof(config) = 'object'),
    CONSTRAINT environments_status CHECK (status IN ('active', 'archived'))
);
