-- Who waits for a workspace: one place a run, in the order of arrival. Places are no
-- history: one that is granted, cancelled or given up goes.
CREATE TABLE reservation_places (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id     uuid NOT NULL,
    workspace_id   uuid NOT NULL,
    run_id         uuid NOT NULL,
    issue_id       uuid NOT NULL,
    arrived_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Where the place stands in the line. It begins as arrived_at; whoever misses its
    -- turn goes behind the next.
    ranked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_polled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT reservation_places_one_a_run UNIQUE (run_id),
    CONSTRAINT reservation_places_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT reservation_places_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT reservation_places_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id)
);

CREATE INDEX reservation_places_in_line ON reservation_places (workspace_id, ranked_at, id);

-- A place lives for 60 s after its last poll, and is present, so that its turn can come,
-- for 15 s.
CREATE VIEW waiting_line AS
SELECT p.id, p.company_id, p.workspace_id, p.run_id, p.issue_id, p.arrived_at, p.ranked_at, p.last_polled_at,
       p.last_polled_at > clock_timestamp() - interval '15 seconds' AS present
FROM reservation_places p
WHERE p.last_polled_at > clock_timestamp() - interval '60 seconds';
COMMENT ON VIEW waiting_line IS
    'The places that live, one row each. Those of a workspace stand in the order of ranked_at and id.';

-- Tells the servers that a workspace that somebody waits for may have become free. Only a
-- hint that saves time: who waits looks by itself as well.
CREATE FUNCTION wake_line(workspace uuid) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM reservation_places p WHERE p.workspace_id = workspace) THEN
        PERFORM pg_notify('berth_workspace', workspace::text);
    END IF;
END;
$$;

CREATE FUNCTION wake_line_of_workspace() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM wake_line(NEW.id);
    RETURN NULL;
END;
$$;

CREATE TRIGGER execution_workspaces_wake_line AFTER UPDATE ON execution_workspaces
    FOR EACH ROW WHEN ((OLD.writer_run_id IS NOT NULL AND NEW.writer_run_id IS NULL)
                       OR (OLD.dirty AND NOT NEW.dirty) OR OLD.status <> NEW.status)
    EXECUTE FUNCTION wake_line_of_workspace();

-- A run that ended waits no more, and if it was the writer it may be free to hand over.
CREATE FUNCTION leave_line_when_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    DELETE FROM reservation_places WHERE run_id = NEW.id;
    PERFORM wake_line(w.id) FROM execution_workspaces w WHERE w.writer_run_id = NEW.id;
    RETURN NULL;
END;
$$;

CREATE TRIGGER heartbeat_runs_leave_line AFTER UPDATE ON heartbeat_runs
    FOR EACH ROW WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)
    EXECUTE FUNCTION leave_line_when_ended();

-- So may one whose machine is proven stopped.
CREATE FUNCTION wake_line_behind_lease() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM wake_line(w.id) FROM execution_workspaces w WHERE w.writer_run_id = NEW.heartbeat_run_id;
    RETURN NULL;
END;
$$;

CREATE TRIGGER environment_leases_wake_line AFTER UPDATE ON environment_leases
    FOR EACH ROW EXECUTE FUNCTION wake_line_behind_lease();
