-- An issue is a task. Its references to the workspace and to runs are added where
-- those tables are made.
CREATE TABLE issues (
    id                             uuid PRIMARY KEY,
    company_id                     uuid NOT NULL REFERENCES companies (id),
    issue_number                   bigint NOT NULL,
    identifier                     text NOT NULL,
    title                          text NOT NULL,
    status                         text NOT NULL DEFAULT 'todo',
    parent_id                      uuid,
    project_id                     uuid,
    project_workspace_id           uuid,
    assignee_agent_id              uuid,
    assignee_user_id               uuid,
    responsible_user_id            uuid,
    created_by_user_id             uuid,
    created_by_agent_id            uuid,
    execution_workspace_id         uuid,
    execution_workspace_preference text,
    execution_workspace_settings   jsonb,
    workspace_binding_revision     bigint NOT NULL DEFAULT 0,
    workspace_selection            jsonb,
    workspace_pending_selection    jsonb,
    execution_run_id               uuid,
    checkout_run_id                uuid,
    visibility                     text NOT NULL DEFAULT 'open',
    privacy_root_issue_id          uuid,
    privacy_parent_issue_id        uuid,
    created_at                     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at                     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT issues_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT issues_company_id_number_key UNIQUE (company_id, issue_number),
    CONSTRAINT issues_company_id_identifier_key UNIQUE (company_id, identifier),
    CONSTRAINT issues_parent_fkey FOREIGN KEY (company_id, parent_id) REFERENCES issues (company_id, id),
    CONSTRAINT issues_project_fkey FOREIGN KEY (company_id, project_id) REFERENCES projects (company_id, id),
    CONSTRAINT issues_project_workspace_fkey FOREIGN KEY (company_id, project_workspace_id)
        REFERENCES project_workspaces (company_id, id),
    CONSTRAINT issues_assignee_agent_fkey FOREIGN KEY (company_id, assignee_agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT issues_created_by_agent_fkey FOREIGN KEY (company_id, created_by_agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT issues_privacy_root_fkey FOREIGN KEY (company_id, privacy_root_issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT issues_privacy_parent_fkey FOREIGN KEY (company_id, privacy_parent_issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT issues_parent_other CHECK (parent_id <> id),
    CONSTRAINT issues_privacy_parent_other CHECK (privacy_parent_issue_id <> id),
    CONSTRAINT issues_one_assignee CHECK (assignee_agent_id IS NULL OR assignee_user_id IS NULL),
    CONSTRAINT issues_status CHECK (status IN
        ('backlog', 'todo', 'in_progress', 'in_review', 'blocked', 'done', 'cancelled')),
    CONSTRAINT issues_visibility CHECK (visibility IN ('open', 'private')),
    CONSTRAINT issues_binding_revision_bounds CHECK (workspace_binding_revision >= 0)
);

CREATE INDEX issues_by_company ON issues (company_id, created_at, id);
CREATE INDEX issues_by_workspace ON issues (execution_workspace_id) WHERE execution_workspace_id IS NOT NULL;
CREATE INDEX issues_by_parent ON issues (parent_id) WHERE parent_id IS NOT NULL;

-- Who else may read a private task.
CREATE TABLE issue_access_grants (
    company_id     uuid NOT NULL,
    issue_id       uuid NOT NULL,
    principal_type text NOT NULL,
    principal_id   uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    agent_id       uuid GENERATED ALWAYS AS (CASE WHEN principal_type = 'agent' THEN principal_id END) STORED,
    CONSTRAINT issue_access_grants_agent_fkey FOREIGN KEY (company_id, agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT issue_access_grants_pkey PRIMARY KEY (issue_id, principal_type, principal_id),
    CONSTRAINT issue_access_grants_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT issue_access_grants_principal_type CHECK (principal_type IN ('user', 'agent'))
);
