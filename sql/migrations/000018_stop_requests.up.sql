-- What operators asked of writers: to end by themselves until a deadline. A request is
-- about one tenure. Of several about one tenure the newest counts, and the others are
-- superseded by it, so that one at most is open.
CREATE TABLE stop_requests (
    id              uuid PRIMARY KEY,
    company_id      uuid NOT NULL,
    workspace_id    uuid NOT NULL,
    epoch           bigint NOT NULL,
    run_id          uuid NOT NULL,
    reason          text NOT NULL,
    deadline        timestamptz NOT NULL,
    requested_by    text NOT NULL,
    requested_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    state           text NOT NULL DEFAULT 'requested',
    -- From the deadline on the providers of the run's machines are asked. Whoever claims
    -- the next attempt moves it away for as long as the attempt may take, and writes its
    -- outcome only while the claim is still its own.
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    claimed_by      uuid,
    last_error_kind text,
    alerted_at      timestamptz,
    settled_at      timestamptz,
    CONSTRAINT stop_requests_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT stop_requests_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT stop_requests_epoch_bounds CHECK (epoch BETWEEN 0 AND 9007199254740991),
    CONSTRAINT stop_requests_reason CHECK (reason <> ''),
    CONSTRAINT stop_requests_state CHECK (state IN
        ('requested', 'enforcing', 'alert', 'enforced', 'over', 'superseded')),
    CONSTRAINT stop_requests_settled CHECK ((settled_at IS NOT NULL) = (state IN ('enforced', 'over', 'superseded')))
);

CREATE UNIQUE INDEX stop_requests_one_open ON stop_requests (workspace_id, epoch) WHERE settled_at IS NULL;
CREATE INDEX stop_requests_by_workspace ON stop_requests (workspace_id, requested_at DESC, id DESC);
CREATE INDEX stop_requests_due ON stop_requests (next_attempt_at) WHERE settled_at IS NULL;

-- What was asked never changes, and what is settled stays so.
CREATE FUNCTION guard_stop_request() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.company_id, NEW.workspace_id, NEW.epoch, NEW.run_id, NEW.reason, NEW.deadline, NEW.requested_by,
        NEW.requested_at)
       IS DISTINCT FROM
       (OLD.id, OLD.company_id, OLD.workspace_id, OLD.epoch, OLD.run_id, OLD.reason, OLD.deadline, OLD.requested_by,
        OLD.requested_at)
       OR OLD.settled_at IS NOT NULL OR NEW.attempts < OLD.attempts
       OR (NEW.state = 'requested' AND OLD.state <> 'requested') THEN
        RAISE EXCEPTION 'stop request % is %, and goes forward only', OLD.id, OLD.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'stop_requests_forward';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER stop_requests_guard BEFORE UPDATE ON stop_requests
    FOR EACH ROW EXECUTE FUNCTION guard_stop_request();
CREATE TRIGGER stop_requests_no_delete BEFORE DELETE ON stop_requests
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER stop_requests_no_truncate BEFORE TRUNCATE ON stop_requests
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

-- A row that speaks of a tenure speaks of the open one of its workspace, epoch and run.
CREATE FUNCTION require_open_tenure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM tenures t
        WHERE t.company_id = NEW.company_id AND t.workspace_id = NEW.workspace_id AND t.epoch = NEW.epoch
          AND t.run_id = NEW.run_id AND t.ended_at IS NULL) THEN
        RAISE EXCEPTION 'workspace % has no open tenure of run % at epoch %', NEW.workspace_id, NEW.run_id, NEW.epoch
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_TABLE_NAME || '_of_open_tenure';
    END IF;
    RETURN NULL;
END;
$$;

CREATE TRIGGER stop_requests_of_open_tenure AFTER INSERT ON stop_requests
    FOR EACH ROW EXECUTE FUNCTION require_open_tenure();

-- Each step of a request is an event: stop.requested, and from then on stop.<state>.
CREATE FUNCTION record_stop_request_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'stop.' || NEW.state, NEW.workspace_id, NEW.run_id, NEW.epoch,
            CASE WHEN TG_OP = 'INSERT' THEN NEW.requested_by ELSE 'stop-request:' || NEW.id END,
            jsonb_strip_nulls(jsonb_build_object('stopRequestId', NEW.id, 'reason', NEW.reason,
                'deadline', to_char(NEW.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'attempts', nullif(NEW.attempts, 0), 'errorKind', NEW.last_error_kind)));
    RETURN NULL;
END;
$$;

CREATE TRIGGER stop_requests_event_on_insert AFTER INSERT ON stop_requests
    FOR EACH ROW EXECUTE FUNCTION record_stop_request_event();
CREATE TRIGGER stop_requests_event_on_update AFTER UPDATE ON stop_requests
    FOR EACH ROW WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION record_stop_request_event();

-- Writers that were not heard of for too long: one row a silence, which begins where the
-- run was last heard of. That it is silent proves nothing; the row only remembers that it
-- was told, and when the providers of its machines are asked next.
CREATE TABLE writer_silences (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id      uuid NOT NULL,
    workspace_id    uuid NOT NULL,
    epoch           bigint NOT NULL,
    run_id          uuid NOT NULL,
    heard_at        timestamptz NOT NULL,
    noticed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_by      uuid,
    last_error_kind text,
    ended_at        timestamptz,
    ended_how       text,
    CONSTRAINT writer_silences_once UNIQUE (workspace_id, epoch, heard_at),
    CONSTRAINT writer_silences_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT writer_silences_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    -- It was heard of again; its machines are proven stopped; or its run or tenure ended otherwise.
    CONSTRAINT writer_silences_ended_how CHECK (ended_how IN ('heard', 'stopped', 'over')),
    CONSTRAINT writer_silences_ended_together CHECK ((ended_at IS NULL) = (ended_how IS NULL))
);

CREATE INDEX writer_silences_due ON writer_silences (next_attempt_at) WHERE ended_at IS NULL;

CREATE FUNCTION guard_writer_silence() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.company_id, NEW.workspace_id, NEW.epoch, NEW.run_id, NEW.heard_at, NEW.noticed_at)
       IS DISTINCT FROM (OLD.id, OLD.company_id, OLD.workspace_id, OLD.epoch, OLD.run_id, OLD.heard_at, OLD.noticed_at)
       OR OLD.ended_at IS NOT NULL OR NEW.attempts < OLD.attempts THEN
        RAISE EXCEPTION 'silence % goes forward only', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'writer_silences_forward';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER writer_silences_guard BEFORE UPDATE ON writer_silences
    FOR EACH ROW EXECUTE FUNCTION guard_writer_silence();
CREATE TRIGGER writer_silences_no_delete BEFORE DELETE ON writer_silences
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER writer_silences_no_truncate BEFORE TRUNCATE ON writer_silences
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

CREATE FUNCTION record_silence_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'writer.silent', NEW.workspace_id, NEW.run_id, NEW.epoch, 'silence:' || NEW.id,
            jsonb_build_object('lastHeardAt', to_char(NEW.heard_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')));
    RETURN NULL;
END;
$$;

CREATE TRIGGER writer_silences_event AFTER INSERT ON writer_silences
    FOR EACH ROW EXECUTE FUNCTION record_silence_event();

-- The provider answered by the id of this lease's machine once, under that configuration,
-- while the run still had it: only then is a later "not found" a word about this machine.
-- A sweep that cleans up after the run remembers the same beside its own work.
CREATE TABLE lease_sightings (
    lease_id    uuid PRIMARY KEY,
    company_id  uuid NOT NULL,
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_config bytea NOT NULL,
    CONSTRAINT lease_sightings_lease_fkey FOREIGN KEY (company_id, lease_id)
        REFERENCES environment_leases (company_id, id)
);
