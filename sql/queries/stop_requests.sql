-- name: SupersedeStopRequest :execrows
-- A newer request takes the place of the open one of its tenure, whose workspace is
-- locked. Zero rows: there is none.
UPDATE stop_requests
SET state = 'superseded', settled_at = clock_timestamp(), claimed_by = NULL
WHERE company_id = @company_id AND workspace_id = @workspace_id AND epoch = @epoch AND settled_at IS NULL;

-- name: InsertStopRequest :one
INSERT INTO stop_requests (id, company_id, workspace_id, epoch, run_id, reason, deadline, requested_by, next_attempt_at)
VALUES (@id, @company_id, @workspace_id, @epoch, @run_id, @reason, @deadline, @requested_by, @deadline)
RETURNING *;

-- name: ListStopRequests :many
SELECT r.* FROM stop_requests r
WHERE r.company_id = @company_id AND r.workspace_id = @workspace_id
  AND (sqlc.narg(before_at)::timestamptz IS NULL
       OR (r.requested_at, r.id) < (sqlc.narg(before_at)::timestamptz, sqlc.narg(before_id)::uuid))
ORDER BY r.requested_at DESC, r.id DESC
LIMIT @rows;

-- name: SettleOldStopRequests :execrows
-- What was asked of a tenure that ended is over. Zero rows: all open requests are about
-- tenures that go on.
UPDATE stop_requests r
SET state = 'over', settled_at = clock_timestamp(), claimed_by = NULL
FROM tenures t
WHERE r.settled_at IS NULL AND t.workspace_id = r.workspace_id AND t.epoch = r.epoch AND t.ended_at IS NOT NULL;

-- name: ClaimStopRequest :one
-- One server makes an attempt: those who look at the same moment skip the row, and later
-- ones find its time moved on. A claim of a server that died is free two minutes later.
-- Zero rows: nothing is due.
UPDATE stop_requests r
SET claimed_by = @claim::uuid, attempts = r.attempts + 1, next_attempt_at = clock_timestamp() + interval '2 minutes',
    state = CASE r.state WHEN 'requested' THEN 'enforcing' ELSE r.state END
WHERE r.id = (
    SELECT due.id FROM stop_requests due
    WHERE due.settled_at IS NULL AND due.next_attempt_at <= clock_timestamp()
    ORDER BY due.next_attempt_at LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: PostponeStopRequest :execrows
-- The attempt proved nothing: the next one comes later, and people are told by the state
-- alert. Zero rows: the claim is no longer this attempt's.
UPDATE stop_requests
SET claimed_by = NULL, last_error_kind = @error_kind::text,
    next_attempt_at = clock_timestamp() + make_interval(secs => @seconds),
    state = CASE WHEN @alert::boolean THEN 'alert' ELSE state END,
    alerted_at = CASE WHEN @alert::boolean THEN coalesce(alerted_at, clock_timestamp()) ELSE alerted_at END
WHERE id = @id AND claimed_by = @claim::uuid AND settled_at IS NULL;

-- name: SettleStopRequest :execrows
-- Zero rows: the claim is no longer this attempt's.
UPDATE stop_requests
SET state = @state, settled_at = clock_timestamp(), claimed_by = NULL
WHERE id = @id AND claimed_by = @claim::uuid AND settled_at IS NULL;
