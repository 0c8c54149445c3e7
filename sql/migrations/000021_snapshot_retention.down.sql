CREATE OR REPLACE FUNCTION record_snapshot_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'snapshot.' || NEW.state, NEW.workspace_id, NEW.run_id, NEW.epoch, NEW.created_by,
            jsonb_build_object('snapshotId', NEW.id, 'parentSnapshotId', NEW.parent_snapshot_id,
                               'sha256', NEW.sha256, 'size', NEW.size, 'fileCount', NEW.file_count));
    RETURN NULL;
END;
$$;

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

ALTER TABLE snapshots DROP CONSTRAINT snapshots_committed;
UPDATE snapshots SET committed_at = NULL WHERE state = 'unavailable';
ALTER TABLE snapshots ADD CONSTRAINT snapshots_committed CHECK ((state = 'committed') = (committed_at IS NOT NULL));
DROP INDEX snapshots_kept;
DROP INDEX snapshots_pending;
ALTER TABLE snapshots DROP CONSTRAINT snapshots_name_form;
DROP INDEX snapshots_name_once;
