-- An immutable, complete saved state of a workspace's files, made under one epoch.
CREATE TABLE snapshots (
    id                 uuid PRIMARY KEY,
    company_id         uuid NOT NULL,
    workspace_id       uuid NOT NULL,
    epoch              bigint NOT NULL,
    run_id             uuid,
    parent_snapshot_id uuid,
    state              text NOT NULL,
    location_provider  text,
    location_key       text,
    size               bigint,
    file_count         bigint,
    sha256             text,
    name               text,
    dirty_marks        bigint NOT NULL DEFAULT 0,
    created_by         text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at       timestamptz,
    CONSTRAINT snapshots_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT snapshots_workspace_id_key UNIQUE (company_id, workspace_id, id),
    CONSTRAINT snapshots_location_key UNIQUE (location_provider, location_key),
    CONSTRAINT snapshots_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT snapshots_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT snapshots_parent_fkey FOREIGN KEY (company_id, parent_snapshot_id) REFERENCES snapshots (company_id, id),
    CONSTRAINT snapshots_state CHECK (state IN ('pending', 'committed', 'abandoned', 'unavailable')),
    CONSTRAINT snapshots_epoch_bounds CHECK (epoch BETWEEN 0 AND 9007199254740991),
    CONSTRAINT snapshots_size_bounds CHECK (size >= 0 AND file_count >= 0),
    CONSTRAINT snapshots_sha256_form CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT snapshots_described CHECK (state = 'unavailable' OR
        (location_provider IS NOT NULL AND location_key IS NOT NULL
         AND size IS NOT NULL AND file_count IS NOT NULL AND sha256 IS NOT NULL)),
    CONSTRAINT snapshots_committed CHECK ((state = 'committed') = (committed_at IS NOT NULL))
);

CREATE INDEX snapshots_by_workspace ON snapshots (workspace_id, created_at DESC, id DESC);

ALTER TABLE execution_workspaces ADD CONSTRAINT execution_workspaces_snapshot_fkey
    FOREIGN KEY (company_id, id, snapshot_id) REFERENCES snapshots (company_id, workspace_id, id);

-- A snapshot's content and origin never change; its state moves once, from pending to
-- committed or abandoned. One that was imported without bytes takes them once.
CREATE FUNCTION guard_snapshot() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.company_id, NEW.workspace_id, NEW.epoch, NEW.run_id, NEW.parent_snapshot_id, NEW.dirty_marks,
        NEW.created_by, NEW.created_at)
       IS DISTINCT FROM
       (OLD.id, OLD.company_id, OLD.workspace_id, OLD.epoch, OLD.run_id, OLD.parent_snapshot_id, OLD.dirty_marks,
        OLD.created_by, OLD.created_at) THEN
        RAISE EXCEPTION 'snapshot % keeps its origin', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'snapshots_identity';
    END IF;
    IF OLD.state <> 'unavailable' AND
       (NEW.location_provider, NEW.location_key, NEW.size, NEW.file_count, NEW.sha256)
       IS DISTINCT FROM (OLD.location_provider, OLD.location_key, OLD.size, OLD.file_count, OLD.sha256) THEN
        RAISE EXCEPTION 'snapshot % keeps its content', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'snapshots_content';
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN
       (('pending', 'committed'), ('pending', 'abandoned'), ('unavailable', 'committed')) THEN
        RAISE EXCEPTION 'snapshot % is %, and cannot become %', OLD.id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'snapshots_forward';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER snapshots_guard BEFORE UPDATE ON snapshots
    FOR EACH ROW EXECUTE FUNCTION guard_snapshot();
CREATE TRIGGER snapshots_no_delete BEFORE DELETE ON snapshots
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER snapshots_no_truncate BEFORE TRUNCATE ON snapshots
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

CREATE FUNCTION record_snapshot_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'snapshot.' || NEW.state, NEW.workspace_id, NEW.run_id, NEW.epoch, NEW.created_by,
            jsonb_build_object('snapshotId', NEW.id, 'parentSnapshotId', NEW.parent_snapshot_id,
                               'sha256', NEW.sha256, 'size', NEW.size, 'fileCount', NEW.file_count));
    RETURN NULL;
END;
$$;

CREATE TRIGGER snapshots_event_on_insert AFTER INSERT ON snapshots
    FOR EACH ROW WHEN (NEW.state <> 'pending') EXECUTE FUNCTION record_snapshot_event();
CREATE TRIGGER snapshots_event_on_update AFTER UPDATE ON snapshots
    FOR EACH ROW WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION record_snapshot_event();
