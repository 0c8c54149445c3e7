-- One machine held for one run, with the provider's id for it. A lease names its
-- workspace only as a note: a writer's leases are found by the run.
CREATE TABLE environment_leases (
    id                     uuid PRIMARY KEY,
    company_id             uuid NOT NULL REFERENCES companies (id),
    environment_id         uuid NOT NULL REFERENCES environments (id),
    heartbeat_run_id       uuid,
    issue_id               uuid,
    execution_workspace_id uuid,
    provider               text,
    provider_lease_id      text,
    status                 text NOT NULL DEFAULT 'active',
    lease_policy           text NOT NULL DEFAULT 'ephemeral',
    cleanup_status         text,
    failure_reason         text,
    release_pending        boolean NOT NULL DEFAULT false,
    replaced_by_run_id     uuid,
    acquired_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at            timestamptz,
    expires_at             timestamptz,
    created_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT environment_leases_company_id_id_key UNIQUE (company_id, id),
    -- What a receipt must name, all of it, is the key that it refers to.
    CONSTRAINT environment_leases_receipt_key UNIQUE (company_id, id, heartbeat_run_id, provider, provider_lease_id),
    CONSTRAINT environment_leases_run_fkey FOREIGN KEY (company_id, heartbeat_run_id)
        REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT environment_leases_issue_fkey FOREIGN KEY (company_id, issue_id) REFERENCES issues (company_id, id),
    CONSTRAINT environment_leases_replaced_by_fkey FOREIGN KEY (company_id, replaced_by_run_id)
        REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT environment_leases_status CHECK (status IN
        ('active', 'released', 'expired', 'failed', 'retained', 'pending_cleanup')),
    CONSTRAINT environment_leases_policy CHECK (lease_policy IN
        ('ephemeral', 'reuse_by_environment', 'reuse_by_execution_workspace', 'retain_on_failure')),
    CONSTRAINT environment_leases_cleanup_status CHECK (cleanup_status IN ('pending', 'success', 'failed')),
    CONSTRAINT environment_leases_active_open CHECK (status <> 'active' OR released_at IS NULL),
    CONSTRAINT environment_leases_released_after CHECK (released_at >= acquired_at)
);

CREATE INDEX environment_leases_by_run ON environment_leases (heartbeat_run_id, company_id);
CREATE INDEX environment_leases_by_company ON environment_leases (company_id, created_at, id);

-- Leases go forward only: what left `active` never returns to it (a reused machine
-- is a new lease), and one that ended with its machine cleaned away is settled.
CREATE FUNCTION guard_environment_lease() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.company_id, NEW.environment_id, NEW.heartbeat_run_id, NEW.provider, NEW.provider_lease_id,
        NEW.acquired_at, NEW.created_at)
       IS DISTINCT FROM
       (OLD.id, OLD.company_id, OLD.environment_id, OLD.heartbeat_run_id, OLD.provider, OLD.provider_lease_id,
        OLD.acquired_at, OLD.created_at) THEN
        RAISE EXCEPTION 'lease % keeps its environment, run and provider ids', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'environment_leases_identity';
    END IF;
    IF NEW.status = 'active' AND OLD.status <> 'active' THEN
        RAISE EXCEPTION 'lease % is %, and never active again', OLD.id, OLD.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'environment_leases_forward';
    END IF;
    IF OLD.status IN ('released', 'expired') AND OLD.cleanup_status = 'success'
       AND NOT (NEW.status IN ('released', 'expired') AND NEW.cleanup_status IS NOT DISTINCT FROM 'success'
                AND NEW.released_at IS NOT NULL) THEN
        RAISE EXCEPTION 'lease % is settled as %', OLD.id, OLD.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'environment_leases_forward';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER environment_leases_guard BEFORE UPDATE ON environment_leases
    FOR EACH ROW EXECUTE FUNCTION guard_environment_lease();
CREATE TRIGGER environment_leases_no_delete BEFORE DELETE ON environment_leases
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER environment_leases_no_truncate BEFORE TRUNCATE ON environment_leases
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();
