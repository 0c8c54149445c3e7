-- name: InsertWorkspace :one
INSERT INTO execution_workspaces (id, company_id, project_id, project_workspace_id, source_issue_id, derived_from_execution_workspace_id, name, mode,
    strategy_type, provider_type, cwd, status, epoch, source, location, writer_run_id, dirty, dirty_marks)
VALUES (@id, @company_id, @project_id, @project_workspace_id, @source_issue_id, @derived_from_execution_workspace_id, @name, @mode,
    @strategy_type, @provider_type, @cwd, @status, @epoch, @source, @location, @writer_run_id, @dirty, @dirty_marks)
RETURNING *;

-- name: NameFirstSnapshot :one
-- A new workspace names the saved state that was recorded for it in the same transaction.
UPDATE execution_workspaces
SET snapshot_id = @snapshot_id::uuid
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch AND snapshot_id IS NULL
RETURNING *;

-- name: GetWorkspace :one
SELECT * FROM execution_workspaces WHERE company_id = @company_id AND id = @workspace_id;

-- name: LockWorkspace :one
SELECT * FROM execution_workspaces WHERE company_id = @company_id AND id = @workspace_id FOR UPDATE;

-- name: LockWorkspaceHeldByRun :one
-- Zero rows: the run holds none at this moment; look again once the run is locked.
SELECT * FROM execution_workspaces WHERE company_id = @company_id AND writer_run_id = @run_id::uuid FOR UPDATE;

-- name: GetWorkspaceHeldByRun :one
SELECT * FROM execution_workspaces WHERE company_id = @company_id AND writer_run_id = @run_id::uuid;

-- name: RenameWorkspace :one
UPDATE execution_workspaces
SET name = @name, updated_at = clock_timestamp()
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch
RETURNING *;

-- name: SetWorkspaceStatus :one
-- Closing and a reservation at once: one of them finds the other's generation or epoch.
-- Zero rows: the workspace changed; read it again.
UPDATE execution_workspaces
SET status = @status, lifecycle_generation = lifecycle_generation + @generations::bigint, updated_at = clock_timestamp()
WHERE company_id = @company_id AND id = @workspace_id AND epoch = @epoch
  AND lifecycle_generation = @lifecycle_generation
RETURNING *;

-- name: BindIssueToNewWorkspace :one
-- Zero rows: the task was bound meanwhile.
UPDATE issues
SET execution_workspace_id = @workspace_id::uuid,
    workspace_binding_revision = workspace_binding_revision + 1,
    updated_at = clock_timestamp()
WHERE company_id = @company_id AND id = @issue_id AND execution_workspace_id IS NULL
RETURNING workspace_binding_revision;

-- name: LockIssueForBinding :one
SELECT id FROM issues WHERE company_id = @company_id AND id = @issue_id FOR NO KEY UPDATE;

-- name: ListWorkspaces :many
SELECT w.* FROM execution_workspaces w
WHERE w.company_id = @company_id
  AND (sqlc.narg(status)::text IS NULL OR w.status = sqlc.narg(status)::text)
  AND (sqlc.narg(project_id)::uuid IS NULL OR w.project_id = sqlc.narg(project_id)::uuid)
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (w.created_at, w.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
  AND principal_reads_workspace(w.company_id, w.id, @reader_type, @reader_id)
ORDER BY w.created_at, w.id
LIMIT @rows;
