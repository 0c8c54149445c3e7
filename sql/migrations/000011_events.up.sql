-- What happened, in the order it was written. Append-only.
CREATE TABLE events (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id   uuid NOT NULL REFERENCES companies (id),
    kind         text NOT NULL,
    workspace_id uuid,
    issue_id     uuid,
    run_id       uuid,
    epoch        bigint,
    actor        text NOT NULL,
    data         jsonb NOT NULL DEFAULT '{}',
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT events_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT events_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT events_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT events_kind_form CHECK (kind ~ '^[a-z_]+\.[a-z_]+$'),
    CONSTRAINT events_data_object CHECK (jsonb_typeof(data) = 'object')
);

CREATE INDEX events_by_workspace ON events (workspace_id, id) WHERE workspace_id IS NOT NULL;
-- The events of a task's selections are also the memory of its request keys: a key is
-- scheduled once and applied once, for as long as the task lives.
CREATE UNIQUE INDEX events_selection_once ON events (issue_id, (data ->> 'requestKey'), kind)
    WHERE kind IN ('selection.scheduled', 'selection.applied');

CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

-- Receipts tell their own event.
CREATE FUNCTION record_receipt_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, run_id, actor, data)
    VALUES (NEW.company_id, 'receipt.recorded', NEW.run_id, NEW.recorded_by, jsonb_build_object(
        'receiptId', NEW.id, 'leaseId', NEW.lease_id, 'provider', NEW.provider, 'state', NEW.state, 'kind', NEW.kind));
    RETURN NULL;
END;
$$;

CREATE TRIGGER termination_receipts_event AFTER INSERT ON termination_receipts
    FOR EACH ROW EXECUTE FUNCTION record_receipt_event();

-- Refused reservations: the first of its kind is told as an event, the rest are
-- counted, so that a caller who polls does not fill the history.
CREATE TABLE refusals (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id   uuid NOT NULL REFERENCES companies (id),
    issue_id     uuid,
    workspace_id uuid,
    run_id       uuid,
    epoch        bigint,
    code         text NOT NULL,
    actor        text NOT NULL,
    count        bigint NOT NULL DEFAULT 1,
    first_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT refusals_once UNIQUE NULLS NOT DISTINCT (company_id, workspace_id, issue_id, run_id, code, epoch),
    CONSTRAINT refusals_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT refusals_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT refusals_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id)
);

CREATE FUNCTION record_refusal_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, issue_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'reservation.refused', NEW.workspace_id, NEW.issue_id, NEW.run_id, NEW.epoch, NEW.actor,
            jsonb_build_object('code', NEW.code));
    RETURN NULL;
END;
$$;

CREATE TRIGGER refusals_event AFTER INSERT ON refusals
    FOR EACH ROW EXECUTE FUNCTION record_refusal_event();

CREATE FUNCTION guard_refusal() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.company_id, NEW.issue_id, NEW.workspace_id, NEW.run_id, NEW.epoch, NEW.code, NEW.actor, NEW.first_at)
       IS DISTINCT FROM
       (OLD.id, OLD.company_id, OLD.issue_id, OLD.workspace_id, OLD.run_id, OLD.epoch, OLD.code, OLD.actor, OLD.first_at)
       OR NEW.count < OLD.count THEN
        RAISE EXCEPTION 'a refusal is only counted up'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refusals_append_only';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER refusals_guard BEFORE UPDATE ON refusals
    FOR EACH ROW EXECUTE FUNCTION guard_refusal();
CREATE TRIGGER refusals_no_delete BEFORE DELETE ON refusals
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER refusals_no_truncate BEFORE TRUNCATE ON refusals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();
