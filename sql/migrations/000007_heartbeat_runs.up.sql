-- One execution of an agent on a task, and the only kind of writer.
CREATE TABLE heartbeat_runs (
    id               uuid PRIMARY KEY,
    company_id       uuid NOT NULL REFERENCES companies (id),
    agent_id         uuid NOT NULL,
    issue_id         uuid,
    status           text NOT NULL DEFAULT 'running',
    runtime_mode     text NOT NULL DEFAULT 'native',
    context_snapshot jsonb NOT NULL DEFAULT '{}',
    -- The task that the run is for: the column, else what its context names. The
    -- pattern comes first so that the cast meets nothing but a UUID.
    bound_issue_id   uuid GENERATED ALWAYS AS (
        CASE
            WHEN issue_id IS NOT NULL THEN issue_id
            WHEN context_snapshot ->> 'issueId' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                THEN (context_snapshot ->> 'issueId')::uuid
        END) STORED,
    started_at       timestamptz,
    finished_at      timestamptz,
    finished_by      text,
    last_renewed_at  timestamptz,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT heartbeat_runs_company_id_id_key UNIQUE (company_id, id),
    CONSTRAINT heartbeat_runs_agent_fkey FOREIGN KEY (company_id, agent_id) REFERENCES agents (company_id, id),
    CONSTRAINT heartbeat_runs_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT heartbeat_runs_id_not_zero CHECK (id <> '00000000-0000-0000-0000-000000000000'),
    CONSTRAINT heartbeat_runs_context_object CHECK (jsonb_typeof(context_snapshot) = 'object'),
    CONSTRAINT heartbeat_runs_runtime_mode CHECK (runtime_mode IN ('legacy', 'native')),
    CONSTRAINT heartbeat_runs_status CHECK (status IN
        ('queued', 'scheduled_retry', 'running', 'succeeded', 'interrupted', 'failed', 'cancelled', 'timed_out')),
    CONSTRAINT heartbeat_runs_finished CHECK
        ((finished_at IS NOT NULL) = (status IN ('succeeded', 'interrupted', 'failed', 'cancelled', 'timed_out')))
);

CREATE INDEX heartbeat_runs_by_company ON heartbeat_runs (company_id, created_at, id);
CREATE INDEX heartbeat_runs_by_bound_issue ON heartbeat_runs (bound_issue_id, status) WHERE bound_issue_id IS NOT NULL;

ALTER TABLE issues
    ADD CONSTRAINT issues_execution_run_fkey FOREIGN KEY (company_id, execution_run_id)
        REFERENCES heartbeat_runs (company_id, id),
    ADD CONSTRAINT issues_checkout_run_fkey FOREIGN KEY (company_id, checkout_run_id)
        REFERENCES heartbeat_runs (company_id, id);

-- A terminal status is final, and whom a run belongs to never changes: proof and
-- tokens speak about the run as it was.
CREATE FUNCTION guard_heartbeat_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.status IN ('succeeded', 'interrupted', 'failed', 'cancelled', 'timed_out')
       AND (NEW.status, NEW.finished_at) IS DISTINCT FROM (OLD.status, OLD.finished_at) THEN
        RAISE EXCEPTION 'run % ended as %, which is final', OLD.id, OLD.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'heartbeat_runs_terminal_final';
    END IF;
    IF (NEW.id, NEW.company_id, NEW.agent_id, NEW.created_at)
       IS DISTINCT FROM (OLD.id, OLD.company_id, OLD.agent_id, OLD.created_at)
       OR (OLD.bound_issue_id IS NOT NULL AND NEW.issue_id IS DISTINCT FROM OLD.issue_id)
       OR NEW.context_snapshot ->> 'issueId' IS DISTINCT FROM OLD.context_snapshot ->> 'issueId' THEN
        RAISE EXCEPTION 'run % keeps its company, agent and task', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'heartbeat_runs_identity';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER heartbeat_runs_guard BEFORE UPDATE ON heartbeat_runs
    FOR EACH ROW EXECUTE FUNCTION guard_heartbeat_run();
CREATE TRIGGER heartbeat_runs_no_delete BEFORE DELETE ON heartbeat_runs
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER heartbeat_runs_no_truncate BEFORE TRUNCATE ON heartbeat_runs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();
