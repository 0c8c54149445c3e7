-- The provider's confirmation that one leased execution stopped. The reference to
-- the lease holds lease, run, provider, provider id and company together, so that a
-- receipt about anything else cannot be stored.
CREATE TABLE termination_receipts (
    id                uuid PRIMARY KEY,
    company_id        uuid NOT NULL REFERENCES companies (id),
    lease_id          uuid NOT NULL,
    run_id            uuid NOT NULL,
    provider          text NOT NULL,
    provider_lease_id text NOT NULL,
    state             text NOT NULL,
    kind              text NOT NULL,
    recorded_by       text NOT NULL,
    confirmed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT termination_receipts_once UNIQUE (lease_id, kind, state),
    CONSTRAINT termination_receipts_lease_fkey
        FOREIGN KEY (company_id, lease_id, run_id, provider, provider_lease_id)
        REFERENCES environment_leases (company_id, id, heartbeat_run_id, provider, provider_lease_id),
    CONSTRAINT termination_receipts_provider CHECK (provider NOT IN ('', 'local')),
    CONSTRAINT termination_receipts_provider_lease_id CHECK (provider_lease_id <> ''),
    CONSTRAINT termination_receipts_state CHECK (state IN ('stopped', 'destroyed')),
    CONSTRAINT termination_receipts_kind CHECK (kind IN ('termination', 'retained', 'recovery_cleanup')),
    CONSTRAINT termination_receipts_kind_state CHECK (kind = 'termination' OR state = 'stopped')
);

CREATE INDEX termination_receipts_by_run ON termination_receipts (run_id);

-- A confirmation older than the machine is about another machine.
CREATE FUNCTION guard_termination_receipt() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM environment_leases l WHERE l.id = NEW.lease_id AND l.acquired_at > NEW.confirmed_at) THEN
        RAISE EXCEPTION 'receipt for lease % is older than the lease', NEW.lease_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'termination_receipts_after_acquired';
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER termination_receipts_guard BEFORE INSERT ON termination_receipts
    FOR EACH ROW EXECUTE FUNCTION guard_termination_receipt();
CREATE TRIGGER termination_receipts_append_only BEFORE UPDATE OR DELETE ON termination_receipts
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER termination_receipts_no_truncate BEFORE TRUNCATE ON termination_receipts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();

-- What proves that a lease's machine stopped, or what is missing for it. Computed
-- when asked: a handover, an explanation and the guard of the workspace all read this.
CREATE VIEW lease_proofs AS
SELECT
    l.company_id,
    l.heartbeat_run_id AS run_id,
    l.id AS lease_id,
    l.provider,
    r.id AS receipt_id,
    r.kind AS proof_kind,
    CASE
        WHEN r.id IS NOT NULL THEN NULL
        WHEN l.provider IS NULL OR l.provider IN ('', 'local') THEN 'provider_cannot_prove'
        WHEN l.provider_lease_id IS NULL OR l.provider_lease_id = '' THEN 'provider_lease_id_missing'
        WHEN l.status = 'active' THEN 'lease_active'
        WHEN NOT EXISTS (SELECT FROM termination_receipts t WHERE t.lease_id = l.id) THEN 'receipt_missing'
        WHEN l.status = 'retained' AND l.release_pending THEN 'release_pending'
        WHEN l.status = 'retained' AND l.replaced_by_run_id IS NOT NULL THEN 'lease_replaced'
        WHEN l.status IN ('released', 'expired', 'failed') AND l.cleanup_status IS DISTINCT FROM 'success'
            THEN 'cleanup_unconfirmed'
        ELSE 'receipt_does_not_fit_lease'
    END AS missing
FROM environment_leases l
LEFT JOIN LATERAL (
    SELECT t.id, t.kind
    FROM termination_receipts t
    WHERE t.lease_id = l.id
      AND (
        (t.kind = 'termination' AND l.status IN ('released', 'expired', 'failed')
            AND l.released_at IS NOT NULL AND l.cleanup_status = 'success')
        OR (t.kind = 'retained' AND t.state = 'stopped' AND l.status = 'retained'
            AND l.failure_reason = 'work_folder_save_required'
            AND NOT l.release_pending AND l.replaced_by_run_id IS NULL)
        OR (t.kind = 'recovery_cleanup' AND t.state = 'stopped' AND l.status = 'pending_cleanup'))
    ORDER BY t.confirmed_at, t.id
    LIMIT 1
) r ON true;
COMMENT ON VIEW lease_proofs IS
    'One row a lease: the receipt that proves its machine stopped, or in "missing" why there is none.';
