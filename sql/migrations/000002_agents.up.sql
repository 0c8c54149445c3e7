CREATE TABLE agents (
    id                  uuid PRIMARY KEY,
    company_id          uuid NOT NULL REFERENCES companies (id),
    name                text NOT NULL,
    adapter_type        text NOT NULL,
    status              text NOT NULL DEFAULT 'idle',
    reports_to_agent_id uuid,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT agents_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT agents_reports_to_fkey FOREIGN KEY (company_id, reports_to_agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT agents_reports_to_other CHECK (reports_to_agent_id <> id),
    CONSTRAINT agents_status CHECK (status IN
        ('active', 'paused', 'idle', 'running', 'error', 'pending_approval', 'terminated'))
);
