-- Old saved states give up their bytes and keep their place in history; those that
-- somebody named keep both.
CREATE UNIQUE INDEX snapshots_name_once ON snapshots (workspace_id, name) WHERE name IS NOT NULL;
ALTER TABLE snapshots ADD CONSTRAINT snapshots_name_form CHECK (name <> '' AND length(name) <= 200);

-- What collects looks for one state, or for a workspace's newest.
CREATE INDEX snapshots_pending ON snapshots (created_at) WHERE state = 'pending';
CREATE INDEX snapshots_kept ON snapshots (workspace_id, created_at DESC, id DESC) WHERE state = 'committed' AND name IS NULL;

-- A committed snapshot whose bytes were given up is unavailable, and stays one that was
-- committed.
ALTER TABLE snapshots DROP CONSTRAINT snapshots_committed;
ALTER TABLE snapshots ADD CONSTRAINT snapshots_committed CHECK (
    CASE state WHEN 'committed' THEN committed_at IS NOT NULL WHEN 'unavailable' THEN true ELSE committed_at IS NULL END);

-- As before, and: only a snapshot that nobody named and no workspace is at gives up its
-- bytes, and takes only the same again.
CREATE OR REPLACE FUNCTION guard_snapshot() RETURNS trigger
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
    IF (OLD.state <> 'unavailable' OR OLD.sha256 IS NOT NULL) AND
       (NEW.location_provider, NEW.location_key, NEW.size, NEW.file_count, NEW.sha256)
       IS DISTINCT FROM (OLD.location_provider, OLD.location_key, OLD.size, OLD.file_count, OLD.sha256) THEN
        RAISE EXCEPTION 'snapshot % keeps its content', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'snapshots_content';
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN
       (('pending', 'committed'), ('pending', 'abandoned'), ('unavailable', 'committed'), ('committed', 'unavailable')) THEN
        RAISE EXCEPTION 'snapshot % is %, and cannot become %', OLD.id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'snapshots_forward';
    END IF;
    IF OLD.state = 'committed' AND NEW.state = 'unavailable' AND (NEW.name IS NOT NULL OR OLD.name IS NOT NULL OR EXISTS (
        SELECT FROM execution_workspaces w WHERE w.id = OLD.workspace_id AND w.snapshot_id = OLD.id)) THEN
        RAISE EXCEPTION 'snapshot % is named, or the saved state of its workspace, and keeps its bytes', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'snapshots_kept';
    END IF;
    RETURN NEW;
END;
$$;

-- Whom history names for what no caller did.
CREATE OR REPLACE FUNCTION record_snapshot_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'snapshot.' || NEW.state, NEW.workspace_id, NEW.run_id, NEW.epoch,
            CASE WHEN TG_OP = 'UPDATE' AND NEW.state IN ('abandoned', 'unavailable') THEN 'sweep:snapshots' ELSE NEW.created_by END,
            jsonb_build_object('snapshotId', NEW.id, 'parentSnapshotId', NEW.parent_snapshot_id,
                               'sha256', NEW.sha256, 'size', NEW.size, 'fileCount', NEW.file_count));
    RETURN NULL;
END;
$$;
