-- name: FindReceipt :one
-- The receipt of that kind and state that the lease already has. Zero rows: none.
SELECT * FROM termination_receipts WHERE lease_id = @lease_id AND kind = @kind AND state = @state;

-- name: InsertReceipt :one
INSERT INTO termination_receipts (id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by)
VALUES (@id, @company_id, @lease_id, @run_id, @provider, @provider_lease_id, @state, @kind, @recorded_by)
RETURNING *;

-- name: SettleLease :one
-- What a receipt does to its lease, whose row LockLease holds. The machine's release is
-- now, unless it is on record already. Zero rows: the row was not locked.
UPDATE environment_leases
SET status = @status,
    cleanup_status = @cleanup_status,
    failure_reason = @failure_reason,
    released_at = CASE WHEN @released::boolean THEN coalesce(released_at, clock_timestamp()) ELSE released_at END,
    updated_at = clock_timestamp()
WHERE id = @id AND status = @from_status
RETURNING *;
