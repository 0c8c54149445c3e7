-- That a provider once knew a machine by its lease's id is remembered in one place,
-- lease_sightings, by whoever asked it; clean-ups keep no second memory.
INSERT INTO lease_sightings (lease_id, company_id, seen_at, seen_config)
SELECT lease_id, company_id, seen_at, seen_config FROM lease_cleanups WHERE seen_at IS NOT NULL
ON CONFLICT (lease_id) DO NOTHING;

CREATE OR REPLACE FUNCTION guard_lease_cleanup() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.lease_id, NEW.company_id, NEW.created_at) IS DISTINCT FROM (OLD.lease_id, OLD.company_id, OLD.created_at)
       OR OLD.settled_at IS NOT NULL THEN
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

ALTER TABLE lease_cleanups DROP COLUMN seen_at, DROP COLUMN seen_config;
