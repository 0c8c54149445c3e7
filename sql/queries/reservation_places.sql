-- Who waits for a workspace. Places are taken outside of the reservation's transaction:
-- whoever has one decides again afterwards, so nothing that happens in between is missed.

-- name: TakePlace :one
-- A poll by the run. One that lives keeps its place, but whoever missed its turn goes
-- behind the next that is there. One that died, or waited for another workspace, is a
-- newcomer. Zero rows: the run is not running, or no such run.
INSERT INTO reservation_places AS mine (company_id, workspace_id, run_id, issue_id)
SELECT r.company_id, @workspace_id, r.id, @issue_id
FROM heartbeat_runs r
WHERE r.company_id = @company_id AND r.id = @run_id AND r.status = 'running'
ON CONFLICT ON CONSTRAINT reservation_places_one_a_run DO UPDATE SET
    workspace_id = EXCLUDED.workspace_id,
    issue_id = EXCLUDED.issue_id,
    last_polled_at = EXCLUDED.last_polled_at,
    arrived_at = CASE
        WHEN mine.workspace_id = EXCLUDED.workspace_id AND mine.last_polled_at > clock_timestamp() - interval '60 seconds'
        THEN mine.arrived_at ELSE EXCLUDED.arrived_at END,
    ranked_at = CASE
        WHEN mine.workspace_id <> EXCLUDED.workspace_id OR mine.last_polled_at <= clock_timestamp() - interval '60 seconds'
        THEN EXCLUDED.ranked_at
        WHEN mine.last_polled_at > clock_timestamp() - interval '15 seconds'
             OR EXISTS (SELECT FROM waiting_line ahead
                        WHERE ahead.workspace_id = mine.workspace_id AND (ahead.ranked_at, ahead.id) < (mine.ranked_at, mine.id))
        THEN mine.ranked_at
        ELSE coalesce((SELECT next.ranked_at + interval '1 microsecond' FROM waiting_line next
                       WHERE next.workspace_id = mine.workspace_id AND next.present AND next.id <> mine.id
                       ORDER BY next.ranked_at, next.id LIMIT 1),
                      mine.ranked_at) END
RETURNING id;

-- name: LeavePlace :execrows
-- Zero rows: the run does not wait.
DELETE FROM reservation_places WHERE company_id = @company_id AND run_id = @run_id;

-- name: WakeLine :exec
-- After a place was left: the next may have its turn.
SELECT wake_line(@workspace_id);

-- name: GetPlaceOfRun :one
-- Zero rows: the run does not wait for this task's workspace.
SELECT * FROM reservation_places
WHERE company_id = @company_id AND issue_id = @issue_id AND run_id = @run_id;

-- name: KeepPlaces :many
-- The requests of these runs are open at a server: one poll for all of them. A run that
-- is not answered has no place any more.
WITH open AS (
    SELECT p.id FROM reservation_places p
    WHERE p.run_id = ANY (@run_ids::uuid[])
    ORDER BY p.id
    FOR UPDATE
)
UPDATE reservation_places p
SET last_polled_at = clock_timestamp()
FROM open
WHERE p.id = open.id
RETURNING p.run_id;

-- name: ListTurns :many
-- The run whose turn it is, for each of these workspaces that looks as if it could be
-- reserved. Only a hint whom to wake: the reservation decides.
SELECT w.id AS workspace_id, turn.run_id
FROM execution_workspaces w
LEFT JOIN heartbeat_runs writer ON writer.id = w.writer_run_id
JOIN LATERAL (
    SELECT line.run_id FROM waiting_line line
    WHERE line.workspace_id = w.id AND line.present
    ORDER BY line.ranked_at, line.id
    LIMIT 1
) turn ON true
WHERE w.id = ANY (@workspace_ids::uuid[])
  AND (w.writer_run_id IS NULL
       OR (writer.finished_at IS NOT NULL AND NOT w.dirty
           AND EXISTS (SELECT FROM lease_proofs p WHERE p.company_id = w.company_id AND p.run_id = w.writer_run_id)
           AND NOT EXISTS (SELECT FROM lease_proofs p
                           WHERE p.company_id = w.company_id AND p.run_id = w.writer_run_id AND p.receipt_id IS NULL)));

-- name: ListPlaces :many
-- The line of a workspace, and of each place whether the reader may know whose it is.
SELECT line.position, line.run_id, line.issue_id, line.arrived_at, line.last_polled_at,
       principal_reads_issue(line.company_id, line.issue_id, @reader_type, @reader_id) AS readable
FROM (
    SELECT l.*, row_number() OVER (ORDER BY l.ranked_at, l.id) AS position
    FROM waiting_line l
    WHERE l.company_id = @company_id AND l.workspace_id = @workspace_id
) AS line
WHERE line.position > @after_position::bigint
ORDER BY line.position
LIMIT @rows;

-- name: CountPlaces :one
-- How many runs wait for a workspace.
SELECT count(*) FROM waiting_line WHERE company_id = @company_id AND workspace_id = @workspace_id;

-- name: ForgetPlaces :execrows
-- Places that died; those that read the line leave them out already.
DELETE FROM reservation_places WHERE last_polled_at < clock_timestamp() - interval '60 seconds';
