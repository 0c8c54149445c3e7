CREATE TABLE projects (
    id                         uuid PRIMARY KEY,
    company_id                 uuid NOT NULL REFERENCES companies (id),
    name                       text NOT NULL,
    visibility                 text NOT NULL DEFAULT 'open',
    execution_workspace_policy jsonb,
    created_at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT projects_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT projects_visibility CHECK (visibility IN ('open', 'private'))
);

-- Who may read a private project.
CREATE TABLE project_members (
    company_id     uuid NOT NULL,
    project_id     uuid NOT NULL,
    principal_type text NOT NULL,
    principal_id   uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    agent_id       uuid GENERATED ALWAYS AS (CASE WHEN principal_type = 'agent' THEN principal_id END) STORED,
    CONSTRAINT project_members_agent_fkey FOREIGN KEY (company_id, agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT project_members_pkey PRIMARY KEY (project_id, principal_type, principal_id),
    CONSTRAINT project_members_project_fkey FOREIGN KEY (company_id, project_id) REFERENCES projects (company_id, id),
    CONSTRAINT project_members_principal_type CHECK (principal_type IN ('user', 'agent'))
);

-- A configured source of files.
CREATE TABLE project_workspaces (
    id          uuid PRIMARY KEY,
    company_id  uuid NOT NULL,
    project_id  uuid NOT NULL,
    name        text NOT NULL,
    source_type text NOT NULL,
    cwd         text,
    repo_url    text,
    repo_ref    text,
    is_primary  boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT project_workspaces_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT project_workspaces_project_fkey FOREIGN KEY (company_id, project_id) REFERENCES projects (company_id, id),
    CONSTRAINT project_workspaces_source_type CHECK (source_type IN
        ('local_path', 'git_repo', 'remote_managed', 'non_git_path', 'empty'))
);

CREATE UNIQUE INDEX project_workspaces_one_primary ON project_workspaces (project_id) WHERE is_primary;
CREATE INDEX project_workspaces_by_project ON project_workspaces (project_id, created_at, id);
