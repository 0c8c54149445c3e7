-- Who belongs to a company, and what was granted to whom in it. A principal of
-- type agent is an agent of that company; a user is known by its id alone.
CREATE TABLE company_memberships (
    id              uuid PRIMARY KEY,
    company_id      uuid NOT NULL REFERENCES companies (id),
    principal_type  text NOT NULL,
    principal_id    uuid NOT NULL,
    agent_id        uuid GENERATED ALWAYS AS (CASE WHEN principal_type = 'agent' THEN principal_id END) STORED,
    status          text NOT NULL DEFAULT 'active',
    membership_role text NOT NULL DEFAULT 'member',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT company_memberships_principal_key UNIQUE (company_id, principal_type, principal_id),
    CONSTRAINT company_memberships_agent_fkey FOREIGN KEY (company_id, agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT company_memberships_principal_type CHECK (principal_type IN ('user', 'agent')),
    CONSTRAINT company_memberships_status CHECK (status IN ('pending', 'active', 'suspended', 'archived')),
    CONSTRAINT company_memberships_role CHECK (membership_role IN ('owner', 'admin', 'operator', 'viewer', 'member'))
);

CREATE INDEX company_memberships_by_principal ON company_memberships (principal_type, principal_id);

CREATE TABLE permission_grants (
    id             uuid PRIMARY KEY,
    company_id     uuid NOT NULL REFERENCES companies (id),
    principal_type text NOT NULL,
    principal_id   uuid NOT NULL,
    agent_id       uuid GENERATED ALWAYS AS (CASE WHEN principal_type = 'agent' THEN principal_id END) STORED,
    permission_key text NOT NULL,
    scope          jsonb,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT permission_grants_agent_fkey FOREIGN KEY (company_id, agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT permission_grants_principal_type CHECK (principal_type IN ('user', 'agent')),
    CONSTRAINT permission_grants_permission_key CHECK (permission_key IN ('tasks:assign', 'tasks:assign_scope')),
    CONSTRAINT permission_grants_scope CHECK
        ((permission_key = 'tasks:assign_scope') = (scope IS NOT NULL) AND (scope IS NULL OR jsonb_typeof(scope) = 'object'))
);

CREATE INDEX permission_grants_by_principal ON permission_grants (company_id, principal_type, principal_id);
