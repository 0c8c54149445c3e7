-- Background work is queued in River's tables, which are River's own: its migrations fill this schema.
CREATE SCHEMA river;

-- What is still to be done about the machine of a lease whose run ended, and how often it
-- was tried. One row a lease, made when the lease leaves its run's hands, and settled when
-- a receipt says that the machine is gone, or stopped where no more is asked for.
CREATE TABLE lease_cleanups (
    lease_id        uuid PRIMARY KEY,
    company_id      uuid NOT NULL,
    -- Failed tries since the last step that succeeded.
    attempts        int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A claim is one server's try. Its outcome is written only under the same claim, and
    -- a claim that ran out is anybody's.
    claimed_by      uuid,
    claimed_until   timestamptz,
    last_attempt_at timestamptz,
    last_error_kind text,
    -- Why nothing is tried, other than the time of the next attempt.
    held_back_by    text,
    warned_at       timestamptz,
    -- The provider answered by this very id once, under that configuration: only then is
    -- "not found" a word about this machine.
    seen_at         timestamptz,
    seen_config     bytea,
    settled_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT lease_cleanups_lease_fkey FOREIGN KEY (company_id, lease_id)
        REFERENCES environment_leases (company_id, id),
    CONSTRAINT lease_cleanups_attempts CHECK (attempts >= 0),
    CONSTRAINT lease_cleanups_claim_together CHECK ((claimed_by IS NULL) = (claimed_until IS NULL)),
    CONSTRAINT lease_cleanups_seen_together CHECK ((seen_at IS NULL) = (seen_config IS NULL)),
    CONSTRAINT lease_cleanups_held_back_by CHECK
        (held_back_by IN ('unsaved_work', 'retained', 'machine_in_use', 'unknown_provider')),
    CONSTRAINT lease_cleanups_settled_is_free CHECK (settled_at IS NULL OR claimed_by IS NULL)
);

CREATE INDEX lease_cleanups_due ON lease_cleanups (next_attempt_at) WHERE settled_at IS NULL;

-- The sweep looks for leases that nobody began to clean up yet, and for other leases of
-- the same machine.
CREATE INDEX environment_leases_unsettled ON environment_leases (heartbeat_run_id)
    WHERE status IN ('active', 'pending_cleanup', 'retained') OR cleanup_status IS DISTINCT FROM 'success';
CREATE INDEX environment_leases_by_machine ON environment_leases (provider_lease_id, provider);

-- Leases whose run ended, and whose machine nobody proved to be cleaned up. One that was
-- released by somebody's word, with no word about its machine, is that somebody's; so is
-- one that is retained for another reason than unsaved files.
CREATE VIEW lease_cleanup_debt AS
SELECT l.company_id, l.id AS lease_id, l.heartbeat_run_id AS run_id, l.provider, l.status,
       greatest(r.finished_at, l.created_at) AS since,
       c.created_at AS begun_at, coalesce(c.attempts, 0) AS attempts, c.next_attempt_at, c.last_error_kind, c.held_back_by
FROM environment_leases l
JOIN heartbeat_runs r ON r.company_id = l.company_id AND r.id = l.heartbeat_run_id AND r.finished_at IS NOT NULL
LEFT JOIN lease_cleanups c ON c.lease_id = l.id
WHERE (l.status IN ('active', 'pending_cleanup', 'retained') OR l.cleanup_status IS DISTINCT FROM 'success')
  AND (l.status IN ('active', 'pending_cleanup')
       OR (l.status IN ('failed', 'expired') AND l.cleanup_status IS DISTINCT FROM 'success')
       OR (l.status = 'released' AND l.cleanup_status IN ('pending', 'failed'))
       OR (l.status = 'retained' AND (l.failure_reason = 'work_folder_save_required' OR l.release_pending)));
COMMENT ON VIEW lease_cleanup_debt IS
    'One row a lease whose run ended and whose machine is not proven to be cleaned up, since when, and how often that was tried.';

-- What is settled stays settled, and what a provider once answered is not forgotten.
CREATE FUNCTION guard_lease_cleanup() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.lease_id, NEW.company_id, NEW.created_at) IS DISTINCT FROM (OLD.lease_id, OLD.company_id, OLD.created_at)
       OR OLD.settled_at IS NOT NULL
       OR (OLD.seen_at IS NOT NULL AND NEW.seen_at IS NULL) THEN
        RAISE EXCEPTION 'the clean-up of lease % goes forward only', OLD.lease_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_cleanups_forward';
    END IF;
    IF NEW.settled_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM environment_leases l
        WHERE l.id = NEW.lease_id AND l.status IN ('released', 'expired', 'failed') AND l.cleanup_status = 'success') THEN
        RAISE EXCEPTION 'the machine of lease % is not cleaned up', NEW.lease_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_cleanups_settled_by_lease';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER lease_cleanups_guard BEFORE UPDATE ON lease_cleanups
    FOR EACH ROW EXECUTE FUNCTION guard_lease_cleanup();
CREATE TRIGGER lease_cleanups_no_delete BEFORE DELETE ON lease_cleanups
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER lease_cleanups_no_truncate BEFORE TRUNCATE ON lease_cleanups
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();
