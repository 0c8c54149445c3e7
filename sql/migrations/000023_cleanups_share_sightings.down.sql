ALTER TABLE lease_cleanups ADD COLUMN seen_at timestamptz, ADD COLUMN seen_config bytea;
ALTER TABLE lease_cleanups ADD CONSTRAINT lease_cleanups_seen_together CHECK ((seen_at IS NULL) = (seen_config IS NULL));

CREATE OR REPLACE FUNCTION guard_lease_cleanup() RETURNS trigger
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
