-- Clean-up goes in three steps: a lease leaves its ended run's hands, a server claims the
-- try, the outcome is written under that claim. No lock is held while a provider is asked.

-- name: ListLeasesToBegin :many
-- Leases of runs that ended a while ago, whose clean-up nobody began.
SELECT lease_id FROM lease_cleanup_debt
WHERE begun_at IS NULL AND since <= clock_timestamp() - make_interval(secs => @after_seconds::float8)
ORDER BY since, lease_id
LIMIT @at_most;

-- name: BeginLeaseCleanup :execrows
-- On a lease that LockLease holds. Zero rows: another server began it.
INSERT INTO lease_cleanups (lease_id, company_id) VALUES (@lease_id, @company_id)
ON CONFLICT (lease_id) DO NOTHING;

-- name: SendLeaseToCleanup :execrows
-- The lease is out of its run's hands, on a row that LockLease holds; that a clean-up
-- failed before stays on record. Zero rows: it moved on.
UPDATE environment_leases
SET status = 'pending_cleanup',
    cleanup_status = CASE WHEN cleanup_status = 'failed' THEN 'failed' ELSE 'pending' END,
    updated_at = clock_timestamp()
WHERE id = @id AND status = @from_status AND status <> 'pending_cleanup';

-- name: SettleLeaseCleanupsDoneElsewhere :execrows
-- Leases that a receipt cleaned up meanwhile, an operator's mostly. Who claimed one finds
-- its claim gone.
UPDATE lease_cleanups c
SET settled_at = clock_timestamp(), claimed_by = NULL, claimed_until = NULL
FROM environment_leases l
WHERE l.id = c.lease_id AND c.settled_at IS NULL
  AND l.status IN ('released', 'expired', 'failed') AND l.cleanup_status = 'success';

-- name: ClaimLeaseCleanups :many
-- Takes what is due for one server. Rows that another is taking are skipped, and those it
-- took have a claim that lasts.
WITH due AS MATERIALIZED (
    SELECT d.lease_id FROM lease_cleanups d
    WHERE d.settled_at IS NULL
      AND d.next_attempt_at <= clock_timestamp()
      AND (d.claimed_until IS NULL OR d.claimed_until <= clock_timestamp())
    ORDER BY d.next_attempt_at
    LIMIT @rows
    FOR UPDATE SKIP LOCKED
)
UPDATE lease_cleanups c
SET claimed_by = @claim::uuid,
    claimed_until = clock_timestamp() + make_interval(secs => @claim_seconds::float8),
    last_attempt_at = clock_timestamp()
FROM due
WHERE c.lease_id = due.lease_id
RETURNING c.lease_id;

-- name: GetLeaseCleanupFacts :one
-- What the next step for a lease rests on. Unsaved work and use are looked for on the
-- machine: another lease may be of the same one.
SELECT
    l.company_id,
    l.heartbeat_run_id::uuid AS run_id,
    l.provider,
    l.provider_lease_id,
    l.status,
    l.lease_policy,
    coalesce(l.failure_reason, '')::text AS failure_reason,
    l.release_pending,
    r.status AS run_status,
    r.finished_at AS run_finished_at,
    e.config AS environment_config,
    coalesce(seen.seen_config = sha256(convert_to(e.config::text, 'UTF8')), false)::boolean AS known_here,
    coalesce(c.held_back_by, '')::text AS held_back_by,
    c.warned_at,
    (EXISTS (SELECT FROM execution_workspaces w WHERE w.writer_run_id = l.heartbeat_run_id AND w.dirty)
     OR EXISTS (SELECT FROM environment_leases o
                JOIN execution_workspaces w ON w.writer_run_id = o.heartbeat_run_id AND w.dirty
                WHERE o.provider_lease_id = l.provider_lease_id AND o.provider = l.provider))::boolean AS unsaved_work,
    (EXISTS (SELECT FROM environment_leases o
             LEFT JOIN heartbeat_runs u ON u.id = o.heartbeat_run_id
             WHERE o.provider_lease_id = l.provider_lease_id AND o.provider = l.provider
               AND o.id <> l.id AND o.status = 'active' AND u.finished_at IS NULL)
     OR EXISTS (SELECT FROM heartbeat_runs u
                WHERE u.id = l.replaced_by_run_id AND u.finished_at IS NULL))::boolean AS in_use,
    EXISTS (SELECT FROM tenures t WHERE t.run_id = l.heartbeat_run_id) AS held_workspace,
    EXISTS (SELECT FROM lease_proofs p WHERE p.lease_id = l.id AND p.receipt_id IS NOT NULL) AS proven
FROM environment_leases l
JOIN heartbeat_runs r ON r.company_id = l.company_id AND r.id = l.heartbeat_run_id
JOIN environments e ON e.id = l.environment_id
LEFT JOIN lease_cleanups c ON c.lease_id = l.id
LEFT JOIN lease_sightings seen ON seen.lease_id = l.id
WHERE l.id = @lease_id;

-- name: LockClaimedCleanup :one
-- The claim holds until the commit. Zero rows: it ran out, another server has the lease,
-- or it is settled; then nothing may be written.
SELECT * FROM lease_cleanups
WHERE lease_id = @lease_id AND claimed_by = @claim::uuid AND claimed_until > clock_timestamp() AND settled_at IS NULL
FOR UPDATE;

-- name: FailLeaseCleanup :one
-- Under a claim that LockClaimedCleanup holds: 30 s until the next try, twice that after
-- each failure, 30 min at most, and up to a quarter more so that servers do not come in step.
UPDATE lease_cleanups
SET attempts = attempts + 1,
    next_attempt_at = clock_timestamp()
        + least(interval '30 minutes', interval '30 seconds' * power(2, least(attempts, 10)) * (1 + random() / 4)),
    last_error_kind = @error_kind::text,
    held_back_by = NULL,
    warned_at = CASE WHEN attempts + 1 = @warn_after::int THEN clock_timestamp() ELSE warned_at END,
    claimed_by = NULL, claimed_until = NULL
WHERE lease_id = @lease_id AND claimed_by = @claim::uuid
RETURNING *;

-- name: HoldBackLeaseCleanup :execrows
-- Under a claim that LockClaimedCleanup holds: nothing was tried, or the step before the
-- next succeeded, and the next waits for somebody.
UPDATE lease_cleanups
SET attempts = 0,
    next_attempt_at = clock_timestamp() + make_interval(secs => @wait_seconds::float8) * (1 + random() / 4),
    last_error_kind = NULL,
    held_back_by = @held_back_by::text,
    warned_at = CASE WHEN @warned::boolean THEN clock_timestamp() ELSE warned_at END,
    claimed_by = NULL, claimed_until = NULL
WHERE lease_id = @lease_id AND claimed_by = @claim::uuid;

-- name: SettleLeaseCleanup :execrows
-- Under a claim that LockClaimedCleanup holds, after the receipt settled the lease.
UPDATE lease_cleanups
SET settled_at = clock_timestamp(), last_error_kind = NULL, held_back_by = NULL, claimed_by = NULL, claimed_until = NULL
WHERE lease_id = @lease_id AND claimed_by = @claim::uuid;

-- name: MarkLeaseCleanupFailed :execrows
-- On a row that LockLease holds. Zero rows: that is on record already.
UPDATE environment_leases SET cleanup_status = 'failed', updated_at = clock_timestamp()
WHERE id = @id AND status = @from_status AND cleanup_status IS DISTINCT FROM 'failed';

-- name: GetLeaseCleanupDebt :one
-- For those who watch the service. What is held back is not overdue.
SELECT
    count(*) FILTER (WHERE held_back_by IS NULL AND attempts = 0)::bigint AS pending,
    count(*) FILTER (WHERE held_back_by IS NULL AND attempts > 0)::bigint AS failing,
    count(*) FILTER (WHERE held_back_by = 'unknown_provider')::bigint AS unknown_provider,
    count(*) FILTER (WHERE held_back_by IN ('unsaved_work', 'retained', 'machine_in_use'))::bigint AS held_back,
    coalesce(extract(epoch FROM clock_timestamp() - min(since) FILTER (WHERE held_back_by IS NULL)), 0)::float8
        AS oldest_seconds
FROM lease_cleanup_debt;

-- name: ListLeaseCleanups :many
-- The clean-ups of these leases; those that nobody began have none.
SELECT * FROM lease_cleanups WHERE lease_id = ANY(@lease_ids::uuid[]);
