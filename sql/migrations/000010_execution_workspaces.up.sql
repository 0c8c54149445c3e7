-- A durable file tree with a life cycle, and its authority: who may write it, under
-- which epoch, from which saved state. Rows are never deleted.
CREATE TABLE execution_workspaces (
    id                                  uuid PRIMARY KEY,
    company_id                          uuid NOT NULL REFERENCES companies (id),
    project_id                          uuid,
    project_workspace_id                uuid,
    source_issue_id                     uuid,
    derived_from_execution_workspace_id uuid,
    name                                text NOT NULL,
    mode                                text NOT NULL,
    strategy_type                       text NOT NULL,
    provider_type                       text NOT NULL,
    cwd                                 text,
    status                              text NOT NULL DEFAULT 'active',
    lifecycle_generation                bigint NOT NULL DEFAULT 0,
    epoch                               bigint NOT NULL DEFAULT 0,
    snapshot_id                         uuid,
    source                              jsonb NOT NULL DEFAULT '{"kind": "empty"}',
    location                            jsonb,
    writer_run_id                       uuid,
    dirty                               boolean NOT NULL DEFAULT false,
    dirty_marks                         bigint NOT NULL DEFAULT 0,
    created_at                          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at                          timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT execution_workspaces_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT execution_workspaces_project_fkey FOREIGN KEY (company_id, project_id) REFERENCES projects (company_id, id),
    CONSTRAINT execution_workspaces_project_workspace_fkey FOREIGN KEY (company_id, project_workspace_id)
        REFERENCES project_workspaces (company_id, id),
    CONSTRAINT execution_workspaces_source_issue_fkey FOREIGN KEY (company_id, source_issue_id)
        REFERENCES issues (company_id, id),
    CONSTRAINT execution_workspaces_derived_from_fkey FOREIGN KEY (company_id, derived_from_execution_workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT execution_workspaces_writer_fkey FOREIGN KEY (company_id, writer_run_id)
        REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT execution_workspaces_mode CHECK (mode IN
        ('isolated_workspace', 'operator_branch', 'shared_workspace', 'adapter_managed', 'cloud_sandbox')),
    CONSTRAINT execution_workspaces_strategy_type CHECK (strategy_type IN
        ('project_primary', 'git_worktree', 'adapter_managed', 'cloud_sandbox', 'task_directory')),
    CONSTRAINT execution_workspaces_provider_type CHECK (provider_type IN
        ('local_fs', 'git_worktree', 'adapter_managed', 'cloud_sandbox')),
    CONSTRAINT execution_workspaces_status CHECK (status IN ('active', 'idle', 'in_review', 'archived', 'cleanup_failed')),
    -- Numbers that every JSON client reads exactly.
    CONSTRAINT execution_workspaces_epoch_bounds CHECK (epoch BETWEEN 0 AND 9007199254740991),
    CONSTRAINT execution_workspaces_source_object CHECK (jsonb_typeof(source) = 'object'),
    CONSTRAINT execution_workspaces_location_object CHECK (jsonb_typeof(location) = 'object'),
    CONSTRAINT execution_workspaces_writer_not_zero CHECK (writer_run_id <> '00000000-0000-0000-0000-000000000000'),
    CONSTRAINT execution_workspaces_dirty_has_writer CHECK (NOT dirty OR writer_run_id IS NOT NULL),
    CONSTRAINT execution_workspaces_closed_has_no_writer
        CHECK (writer_run_id IS NULL OR status NOT IN ('archived', 'cleanup_failed'))
);

-- A run holds at most one workspace.
CREATE UNIQUE INDEX execution_workspaces_run_holds_one ON execution_workspaces (writer_run_id)
    WHERE writer_run_id IS NOT NULL;
CREATE INDEX execution_workspaces_by_company ON execution_workspaces (company_id, created_at, id);

ALTER TABLE issues ADD CONSTRAINT issues_execution_workspace_fkey
    FOREIGN KEY (company_id, execution_workspace_id) REFERENCES execution_workspaces (company_id, id);
ALTER TABLE environment_leases ADD CONSTRAINT environment_leases_workspace_fkey
    FOREIGN KEY (company_id, execution_workspace_id) REFERENCES execution_workspaces (company_id, id);

-- The fence itself, for every statement and every role: an epoch never goes down and
-- moves by one; a writer comes only with a new epoch; and over another writer only when
-- that one ended, left nothing unsaved, and every machine of it is proven stopped.
CREATE FUNCTION guard_execution_workspace() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.company_id, NEW.created_at, NEW.derived_from_execution_workspace_id)
       IS DISTINCT FROM (OLD.id, OLD.company_id, OLD.created_at, OLD.derived_from_execution_workspace_id) THEN
        RAISE EXCEPTION 'workspace % keeps its identity', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_identity';
    END IF;
    IF NEW.lifecycle_generation < OLD.lifecycle_generation OR NEW.dirty_marks < OLD.dirty_marks THEN
        RAISE EXCEPTION 'counters of workspace % only go up', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_counters_forward';
    END IF;
    IF NEW.epoch NOT IN (OLD.epoch, OLD.epoch + 1) THEN
        RAISE EXCEPTION 'the epoch of workspace % is %, and may only become %', OLD.id, OLD.epoch, OLD.epoch + 1
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_epoch_forward';
    END IF;
    IF NEW.writer_run_id IS NOT NULL AND
       (NEW.writer_run_id IS DISTINCT FROM OLD.writer_run_id) <> (NEW.epoch <> OLD.epoch) THEN
        RAISE EXCEPTION 'workspace %: a new writer and a new epoch come together', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_writer_needs_epoch';
    END IF;
    IF NEW.snapshot_id IS DISTINCT FROM OLD.snapshot_id AND NOT EXISTS (
        SELECT FROM snapshots s
        WHERE s.id = NEW.snapshot_id AND s.workspace_id = NEW.id AND s.state IN ('committed', 'unavailable')) THEN
        RAISE EXCEPTION 'workspace % may only name a snapshot that is committed', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_snapshot_committed';
    END IF;
    IF OLD.dirty AND NOT NEW.dirty AND NEW.writer_run_id IS NOT DISTINCT FROM OLD.writer_run_id
       AND NEW.snapshot_id IS NOT DISTINCT FROM OLD.snapshot_id THEN
        RAISE EXCEPTION 'workspace % is dirty until its writer saves or leaves', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_dirty_until_saved';
    END IF;
    IF OLD.writer_run_id IS NOT NULL AND NEW.writer_run_id IS NOT NULL AND NEW.writer_run_id <> OLD.writer_run_id
       AND (OLD.dirty
            OR EXISTS (SELECT FROM heartbeat_runs r WHERE r.id = OLD.writer_run_id AND r.finished_at IS NULL)
            OR EXISTS (SELECT FROM lease_proofs p
                       WHERE p.company_id = OLD.company_id AND p.run_id = OLD.writer_run_id AND p.receipt_id IS NULL)
            OR NOT EXISTS (SELECT FROM lease_proofs p
                           WHERE p.company_id = OLD.company_id AND p.run_id = OLD.writer_run_id)) THEN
        RAISE EXCEPTION 'workspace %: its writer % is not proven stopped', OLD.id, OLD.writer_run_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'execution_workspaces_handover_needs_proof';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER execution_workspaces_guard BEFORE UPDATE ON execution_workspaces
    FOR EACH ROW EXECUTE FUNCTION guard_execution_workspace();
CREATE TRIGGER execution_workspaces_no_delete BEFORE DELETE ON execution_workspaces
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER execution_workspaces_no_truncate BEFORE TRUNCATE ON execution_workspaces
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

-- Every issue ever bound to a workspace, and the one it came from. Only grows:
-- unbinding a task does not take its files out of the tree.
CREATE TABLE workspace_privacy_sources (
    company_id   uuid NOT NULL,
    workspace_id uuid NOT NULL,
    issue_id     uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT workspace_privacy_sources_pkey PRIMARY KEY (workspace_id, issue_id),
    CONSTRAINT workspace_privacy_sources_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT workspace_privacy_sources_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id)
);

CREATE TRIGGER workspace_privacy_sources_append_only BEFORE UPDATE OR DELETE ON workspace_privacy_sources
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER workspace_privacy_sources_no_truncate BEFORE TRUNCATE ON workspace_privacy_sources
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

CREATE FUNCTION remember_bound_issue() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO workspace_privacy_sources (company_id, workspace_id, issue_id)
    VALUES (NEW.company_id, NEW.execution_workspace_id, NEW.id)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END;
$$;

CREATE TRIGGER issues_remember_binding_on_insert AFTER INSERT ON issues
    FOR EACH ROW WHEN (NEW.execution_workspace_id IS NOT NULL) EXECUTE FUNCTION remember_bound_issue();
CREATE TRIGGER issues_remember_binding_on_update AFTER UPDATE ON issues
    FOR EACH ROW WHEN (NEW.execution_workspace_id IS NOT NULL
                       AND NEW.execution_workspace_id IS DISTINCT FROM OLD.execution_workspace_id)
    EXECUTE FUNCTION remember_bound_issue();

-- A workspace remembers the issue it came from, and one derived from another takes
-- all that the other remembers.
CREATE FUNCTION remember_workspace_origin() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO workspace_privacy_sources (company_id, workspace_id, issue_id)
    SELECT NEW.company_id, NEW.id, NEW.source_issue_id WHERE NEW.source_issue_id IS NOT NULL
    UNION
    SELECT s.company_id, NEW.id, s.issue_id
    FROM workspace_privacy_sources s
    WHERE s.workspace_id = NEW.derived_from_execution_workspace_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END;
$$;

CREATE TRIGGER execution_workspaces_remember_origin_on_insert AFTER INSERT ON execution_workspaces
    FOR EACH ROW EXECUTE FUNCTION remember_workspace_origin();
CREATE TRIGGER execution_workspaces_remember_origin_on_update AFTER UPDATE ON execution_workspaces
    FOR EACH ROW WHEN (NEW.source_issue_id IS DISTINCT FROM OLD.source_issue_id)
    EXECUTE FUNCTION remember_workspace_origin();
