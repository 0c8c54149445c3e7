-- The interval in which one run is the writer, at one epoch. Inserted open, closed
-- once. From this table alone the holder at any instant can be rebuilt.
CREATE EXTENSION IF NOT EXISTS btree_gist;

CREATE TABLE tenures (
    id                    uuid PRIMARY KEY,
    company_id            uuid NOT NULL,
    workspace_id          uuid NOT NULL,
    epoch                 bigint NOT NULL,
    run_id                uuid NOT NULL,
    issue_id              uuid,
    started_at            timestamptz NOT NULL,
    started_by            text NOT NULL,
    handover              jsonb,
    reservation_principal text,
    reservation_key       text,
    reservation_digest    bytea,
    ended_at              timestamptz,
    ended_how             text,
    ended_by              text,
    ended_reason          text,
    unsaved_work          boolean NOT NULL DEFAULT false,
    unproven              boolean NOT NULL DEFAULT false,
    proof                 jsonb,
    -- An epoch is never used twice.
    CONSTRAINT tenures_epoch_once UNIQUE (workspace_id, epoch),
    CONSTRAINT tenures_key_once UNIQUE (company_id, reservation_principal, reservation_key),
    CONSTRAINT tenures_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT tenures_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT tenures_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT tenures_no_overlap EXCLUDE USING gist
        (workspace_id WITH =, tstzrange(started_at, ended_at) WITH &&),
    CONSTRAINT tenures_ends_after_start CHECK (ended_at > started_at),
    CONSTRAINT tenures_epoch_bounds CHECK (epoch BETWEEN 0 AND 9007199254740991),
    CONSTRAINT tenures_ended_how CHECK (ended_how IN ('release', 'finish', 'handover', 'takeover')),
    CONSTRAINT tenures_ended_together CHECK
        ((ended_at IS NULL) = (ended_how IS NULL) AND (ended_at IS NULL) = (ended_by IS NULL)),
    CONSTRAINT tenures_key_together CHECK
        ((reservation_key IS NULL) = (reservation_principal IS NULL) AND (reservation_key IS NULL) = (reservation_digest IS NULL)),
    CONSTRAINT tenures_takeover_reason CHECK (ended_how <> 'takeover' OR ended_reason IS NOT NULL)
);

CREATE UNIQUE INDEX tenures_one_open_by_workspace ON tenures (workspace_id) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX tenures_one_open_by_run ON tenures (run_id) WHERE ended_at IS NULL;
CREATE INDEX tenures_by_run ON tenures (run_id, epoch);

CREATE FUNCTION guard_tenure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL OR
       (NEW.id, NEW.company_id, NEW.workspace_id, NEW.epoch, NEW.run_id, NEW.issue_id, NEW.started_at, NEW.started_by,
        NEW.handover, NEW.reservation_principal, NEW.reservation_key, NEW.reservation_digest)
       IS DISTINCT FROM
       (OLD.id, OLD.company_id, OLD.workspace_id, OLD.epoch, OLD.run_id, OLD.issue_id, OLD.started_at, OLD.started_by,
        OLD.handover, OLD.reservation_principal, OLD.reservation_key, OLD.reservation_digest) THEN
        RAISE EXCEPTION 'tenure % may only be closed, once', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tenures_closed_once';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER tenures_guard BEFORE UPDATE ON tenures
    FOR EACH ROW EXECUTE FUNCTION guard_tenure();
-- History is made by what happens: a tenure is never told afterwards.
CREATE FUNCTION refuse_closed_tenure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'tenure % is recorded when it begins, not when it is over', NEW.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'tenures_inserted_open';
END;
$$;

CREATE TRIGGER tenures_inserted_open BEFORE INSERT ON tenures
    FOR EACH ROW WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_closed_tenure();
CREATE TRIGGER tenures_no_delete BEFORE DELETE ON tenures
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER tenures_no_truncate BEFORE TRUNCATE ON tenures
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

CREATE FUNCTION record_tenure_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO events (company_id, kind, workspace_id, issue_id, run_id, epoch, actor, data)
        VALUES (NEW.company_id, 'tenure.started', NEW.workspace_id, NEW.issue_id, NEW.run_id, NEW.epoch, NEW.started_by,
                jsonb_strip_nulls(jsonb_build_object('tenureId', NEW.id, 'handover', NEW.handover)));
    ELSE
        INSERT INTO events (company_id, kind, workspace_id, issue_id, run_id, epoch, actor, data)
        VALUES (NEW.company_id, 'tenure.ended', NEW.workspace_id, NEW.issue_id, NEW.run_id, NEW.epoch, NEW.ended_by,
                jsonb_strip_nulls(jsonb_build_object('tenureId', NEW.id, 'how', NEW.ended_how, 'reason', NEW.ended_reason,
                    'unsavedWork', NEW.unsaved_work, 'unproven', NEW.unproven, 'proof', NEW.proof)));
    END IF;
    RETURN NULL;
END;
$$;

CREATE TRIGGER tenures_event AFTER INSERT OR UPDATE ON tenures
    FOR EACH ROW EXECUTE FUNCTION record_tenure_event();

-- The document and the history say the same at every commit: a writer has the open
-- tenure of its epoch, and where nobody writes no tenure is open.
CREATE FUNCTION check_writer_tenure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    workspace uuid := CASE WHEN TG_TABLE_NAME = 'tenures' THEN (to_jsonb(NEW) ->> 'workspace_id')::uuid ELSE NEW.id END;
BEGIN
    IF EXISTS (
        SELECT
        FROM execution_workspaces w
        LEFT JOIN tenures t ON t.workspace_id = w.id AND t.ended_at IS NULL
        WHERE w.id = workspace
          AND (w.writer_run_id IS DISTINCT FROM t.run_id OR (t.id IS NOT NULL AND w.epoch <> t.epoch))) THEN
        RAISE EXCEPTION 'workspace %: its writer and its open tenure differ', workspace
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tenures_match_writer';
    END IF;
    RETURN NULL;
END;
$$;

CREATE CONSTRAINT TRIGGER execution_workspaces_match_tenure_on_insert AFTER INSERT ON execution_workspaces
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.writer_run_id IS NOT NULL)
    EXECUTE FUNCTION check_writer_tenure();
CREATE CONSTRAINT TRIGGER execution_workspaces_match_tenure_on_update AFTER UPDATE ON execution_workspaces
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.writer_run_id IS DISTINCT FROM OLD.writer_run_id OR NEW.epoch <> OLD.epoch)
    EXECUTE FUNCTION check_writer_tenure();
CREATE CONSTRAINT TRIGGER tenures_match_writer AFTER INSERT OR UPDATE ON tenures
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_writer_tenure();
