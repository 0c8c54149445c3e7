-- A reservation reads in one pipeline and acts in another. The order of the locks is
-- task, workspace, run, here and everywhere else.

-- name: LockIssueForReservation :one
-- The task's binding must not change under the decision. Zero rows: no such task in
-- this company.
SELECT id FROM issues
WHERE company_id = @company_id AND id = @issue_id
FOR SHARE;

-- name: LockBoundWorkspaceForReservation :one
-- One reservation of a workspace at a time. The task is locked, so that its binding
-- holds still. Zero rows: the task is bound to none.
SELECT w.id FROM execution_workspaces w
WHERE w.company_id = @company_id
  AND w.id = (SELECT i.execution_workspace_id FROM issues i WHERE i.company_id = @company_id AND i.id = @issue_id)
FOR UPDATE;

-- name: TryLockBoundWorkspaceForReservation :one
-- The same without waiting: most of those who ask for a workspace that is being reserved
-- are refused, and a refusal needs no lock. Zero rows: the task is bound to none, or
-- somebody else holds the lock.
SELECT w.id FROM execution_workspaces w
WHERE w.company_id = @company_id
  AND w.id = (SELECT i.execution_workspace_id FROM issues i WHERE i.company_id = @company_id AND i.id = @issue_id)
FOR UPDATE SKIP LOCKED;

-- name: LockRunsForReservation :many
-- Neither the run nor the writer before it may end, and the writer may get no further
-- lease, between the facts and the act. Finishing a run and writing a lease wait here.
SELECT r.id FROM heartbeat_runs r
WHERE r.company_id = @company_id
  AND (r.id = @run_id OR r.id = (
      SELECT w.writer_run_id FROM execution_workspaces w
      JOIN issues i ON i.execution_workspace_id = w.id
      WHERE i.company_id = @company_id AND i.id = @issue_id))
ORDER BY r.id
FOR SHARE;

-- name: GetReservationFacts :one
-- Everything that the decision rests on, read after the locks. Always one row; what does
-- not exist in the company is NULL.
SELECT
    i.id AS issue_id,
    principal_reads_issue(@company_id, @issue_id, @reader_type, @reader_id) AS issue_readable,
    i.identifier AS issue_identifier,
    i.project_id AS issue_project_id,
    i.project_workspace_id AS issue_project_workspace_id,
    r.id AS run_id,
    r.status AS run_status,
    r.agent_id AS run_agent_id,
    r.bound_issue_id AS run_issue_id,
    EXISTS (SELECT FROM agents a WHERE a.company_id = @company_id AND a.id = sqlc.narg(agent_id)) AS agent_exists,
    EXISTS (SELECT FROM environments e WHERE e.id = sqlc.narg(environment_id) AND e.status = 'active') AS environment_exists,
    principal_reads_project(@company_id, sqlc.narg(project_id), @reader_type, @reader_id) AS project_exists,
    EXISTS (SELECT FROM project_workspaces pw
            WHERE pw.company_id = @company_id AND pw.id = sqlc.narg(project_workspace_id)
              AND principal_reads_project(@company_id, pw.project_id, @reader_type, @reader_id)) AS project_workspace_exists,
    EXISTS (SELECT FROM execution_workspaces x
            WHERE x.company_id = @company_id AND x.id = sqlc.narg(asked_workspace_id)
              AND principal_reads_workspace(@company_id, x.id, @reader_type, @reader_id)) AS asked_workspace_readable,
    w.id AS workspace_id,
    w.status AS workspace_status,
    w.lifecycle_generation AS workspace_lifecycle_generation,
    w.epoch AS workspace_epoch,
    w.dirty AS workspace_dirty,
    coalesce(w.source = sqlc.narg(source)::jsonb, true)::boolean AS workspace_source_matches,
    -- Of the workspace that there is, or else of the one that would be made for the task.
    (CASE WHEN w.id IS NOT NULL THEN principal_reads_workspace(@company_id, w.id, 'agent', r.agent_id)
          ELSE principal_reads_issue(@company_id, i.id, 'agent', r.agent_id)
              AND (coalesce(sqlc.narg(project_id), i.project_id) IS NULL
                   OR principal_reads_project(@company_id, coalesce(sqlc.narg(project_id), i.project_id), 'agent', r.agent_id))
     END)::boolean AS readable_by_agent,
    writer.id AS writer_run_id,
    writer.status AS writer_status,
    writer.finished_at AS writer_finished_at,
    writer.last_renewed_at AS writer_last_renewed_at,
    coalesce(greatest(writer.last_renewed_at, tenure.started_at)
             < clock_timestamp() - make_interval(secs => @silent_after_seconds), false)::boolean AS writer_silent,
    tenure.id AS tenure_id,
    tenure.issue_id AS tenure_issue_id,
    tenure.started_at AS tenure_started_at,
    tenure.handover AS tenure_handover,
    (tenure.issue_id IS NULL OR principal_reads_issue(@company_id, tenure.issue_id, @reader_type, @reader_id))::boolean
        AS holder_readable,
    asked.reason AS stop_reason,
    asked.deadline AS stop_deadline,
    asked.state AS stop_state,
    last.run_id AS last_run_id,
    last.epoch AS last_epoch,
    last.ended_how AS last_ended_how,
    last.unproven AS last_unproven,
    last.unsaved_work AS last_unsaved_work,
    held.id AS held_workspace_id,
    mine.id AS place_id,
    coalesce(line.position, 1)::bigint AS place_position,
    (coalesce(line.blocked, false)
     OR (mine.id IS NOT NULL AND NOT mine.present
         AND EXISTS (SELECT FROM waiting_line other
                     WHERE other.workspace_id = w.id AND other.run_id <> @run_id AND other.present)))::boolean AS others_first,
    keyed.id AS keyed_tenure_id,
    keyed.reservation_digest AS keyed_digest,
    keyed.ended_at AS keyed_ended_at,
    keyed.ended_how AS keyed_ended_how,
    keyed.ended_by AS keyed_ended_by,
    keyed.ended_reason AS keyed_ended_reason
FROM (SELECT 1) AS always
LEFT JOIN issues i ON i.company_id = @company_id AND i.id = @issue_id
LEFT JOIN heartbeat_runs r ON r.company_id = @company_id AND r.id = @run_id
LEFT JOIN execution_workspaces w ON w.company_id = @company_id AND w.id = i.execution_workspace_id
LEFT JOIN heartbeat_runs writer ON writer.company_id = @company_id AND writer.id = w.writer_run_id
LEFT JOIN tenures tenure ON tenure.workspace_id = w.id AND tenure.ended_at IS NULL
LEFT JOIN stop_requests asked ON asked.workspace_id = w.id AND asked.epoch = w.epoch AND asked.settled_at IS NULL
LEFT JOIN tenures last ON last.workspace_id = w.id AND last.epoch = w.epoch - 1
LEFT JOIN execution_workspaces held ON held.company_id = @company_id AND held.writer_run_id = @run_id
LEFT JOIN waiting_line mine ON mine.run_id = @run_id AND mine.workspace_id = w.id
-- Where the run stands, or would stand. Before it come those who stand before it and are
-- there to take their turn; and if it was away too long itself, anybody who is there.
LEFT JOIN LATERAL (
    SELECT 1 + count(*) AS position, bool_or(other.present) AS blocked
    FROM waiting_line other
    WHERE other.workspace_id = w.id AND other.run_id <> @run_id
      AND (other.ranked_at, other.id) < (coalesce(mine.ranked_at, 'infinity'), coalesce(mine.id, 0))
) line ON true
LEFT JOIN tenures keyed ON keyed.company_id = @company_id
    AND keyed.reservation_principal = @principal AND keyed.reservation_key = sqlc.narg(reservation_key);

-- name: ListLeaseProofsOfWriter :many
-- The machines of the writer of the task's workspace, and what proves that each stopped.
SELECT p.lease_id, p.provider, coalesce(p.receipt_id::text, '')::text AS receipt_id,
       coalesce(p.proof_kind, '')::text AS proof_kind, coalesce(p.missing, '')::text AS missing
FROM lease_proofs p
JOIN execution_workspaces w ON w.company_id = p.company_id AND w.writer_run_id = p.run_id
JOIN issues i ON i.execution_workspace_id = w.id
WHERE i.company_id = @company_id AND i.id = @issue_id
ORDER BY p.lease_id;

-- name: ListLeaseProofsByRun :many
SELECT p.lease_id, p.provider, coalesce(p.receipt_id::text, '')::text AS receipt_id,
       coalesce(p.proof_kind, '')::text AS proof_kind, coalesce(p.missing, '')::text AS missing
FROM lease_proofs p
WHERE p.company_id = @company_id AND p.run_id = @run_id::uuid
ORDER BY p.lease_id;

-- name: GetIssueCompany :one
-- An operator names a task without its company.
SELECT company_id FROM issues WHERE id = @issue_id;

-- name: ReserveWorkspace :one
-- Two reservations of a free workspace: the second waits for the row, and its guard then
-- sees the first's epoch and writer. Zero rows: somebody was faster, or the workspace was
-- closed; decide again.
UPDATE execution_workspaces
SET epoch = epoch + 1, writer_run_id = @run_id::uuid
WHERE company_id = @company_id AND id = @workspace_id
  AND epoch = @epoch
  AND writer_run_id IS NULL
  AND lifecycle_generation = @lifecycle_generation
  AND status IN ('active', 'idle', 'in_review')
RETURNING *;

-- name: HandOverWorkspace :one
-- The same over an ended writer. Two handovers of one writer: the second finds another
-- epoch. Zero rows: decide again.
UPDATE execution_workspaces
SET epoch = epoch + 1, writer_run_id = @run_id::uuid
WHERE company_id = @company_id AND id = @workspace_id
  AND epoch = @epoch
  AND writer_run_id = @from_run_id::uuid
  AND NOT dirty
  AND lifecycle_generation = @lifecycle_generation
  AND status IN ('active', 'idle', 'in_review')
RETURNING *;

-- name: RecordRefusal :one
-- The first refusal of its kind is an event, by trigger; the rest are counted.
INSERT INTO refusals (company_id, issue_id, workspace_id, run_id, epoch, code, actor)
VALUES (@company_id, sqlc.narg(issue_id), sqlc.narg(workspace_id), sqlc.narg(run_id), sqlc.narg(epoch), @code, @actor)
ON CONFLICT ON CONSTRAINT refusals_once DO UPDATE SET count = refusals.count + 1, last_at = clock_timestamp()
RETURNING id;
