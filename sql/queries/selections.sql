-- name: ListSelectionEvents :many
-- What became of a requestKey of the task: it was scheduled, then perhaps applied. The
-- index events_selection_once finds them, and lets no key be either of it twice.
SELECT e.kind, e.data FROM events e
WHERE e.issue_id = @issue_id::uuid
  AND e.kind IN ('selection.scheduled', 'selection.applied')
  AND e.data ->> 'requestKey' = @request_key::text
ORDER BY e.id;

-- name: IsWriter :one
-- Whether the run holds a workspace. It reserves only for its task, whose row is locked,
-- so that the answer holds until commit.
SELECT EXISTS (
    SELECT FROM execution_workspaces w WHERE w.company_id = @company_id AND w.writer_run_id = @run_id::uuid);

-- name: LockSource :one
-- Two tasks that share a source for the first time: the second waits, and then finds the
-- workspace that was made for the first. Zero rows: no such source in the company.
SELECT * FROM project_workspaces WHERE company_id = @company_id AND id = @id FOR NO KEY UPDATE;

-- name: FindSharedWorkspace :one
-- The workspace that the tasks of a source share: the oldest that is not closed. Zero
-- rows: the source has none yet.
SELECT id FROM execution_workspaces
WHERE company_id = @company_id AND project_workspace_id = @project_workspace_id::uuid
  AND mode = 'shared_workspace' AND status IN ('active', 'idle')
ORDER BY created_at, id
LIMIT 1;
