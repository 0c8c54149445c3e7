-- name: InsertProject :one
INSERT INTO projects (id, company_id, name, visibility, execution_workspace_policy)
VALUES (@id, @company_id, @name, @visibility, @execution_workspace_policy)
RETURNING *;

-- name: ListProjects :many
SELECT p.* FROM projects p
WHERE p.company_id = @company_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (p.created_at, p.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
  AND principal_reads_project(p.company_id, p.id, @reader_type, @reader_id)
ORDER BY p.created_at, p.id
LIMIT @rows;

-- name: UpdateProject :one
UPDATE projects
SET name = coalesce(sqlc.narg(name), name),
    visibility = coalesce(sqlc.narg(visibility), visibility),
    execution_workspace_policy = CASE WHEN @set_policy::boolean THEN sqlc.narg(execution_workspace_policy)
                                      ELSE execution_workspace_policy END,
    updated_at = clock_timestamp()
WHERE id = @id
RETURNING *;

-- name: LockProject :one
-- Those who change which source is the primary one go one after the other.
SELECT id FROM projects WHERE id = @id FOR NO KEY UPDATE;

-- name: ClearPrimarySource :execrows
-- Zero rows: the project has no primary source yet.
UPDATE project_workspaces SET is_primary = false, updated_at = clock_timestamp()
WHERE project_id = @project_id AND is_primary;

-- name: InsertProjectWorkspace :one
INSERT INTO project_workspaces (id, company_id, project_id, name, source_type, cwd, repo_url, repo_ref, is_primary)
VALUES (@id, @company_id, @project_id, @name, @source_type, @cwd, @repo_url, @repo_ref, @is_primary)
RETURNING *;

-- name: ListProjectWorkspaces :many
SELECT w.* FROM project_workspaces w
WHERE w.project_id = @project_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (w.created_at, w.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY w.created_at, w.id
LIMIT @rows;

-- name: InsertProjectMember :execrows
-- Zero rows: it is a member already.
INSERT INTO project_members (company_id, project_id, principal_type, principal_id)
VALUES (@company_id, @project_id, @principal_type, @principal_id)
ON CONFLICT DO NOTHING;

-- name: GetProjectMember :one
SELECT * FROM project_members
WHERE project_id = @project_id AND principal_type = @principal_type AND principal_id = @principal_id;

-- name: ListProjectMembers :many
SELECT m.* FROM project_members m
WHERE m.project_id = @project_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (m.created_at, m.principal_id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY m.created_at, m.principal_id
LIMIT @rows;
