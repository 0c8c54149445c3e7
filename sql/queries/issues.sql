-- name: TakeIssueNumber :one
-- Two tasks made at once: the second waits for the company's row and counts on from the
-- first. A rolled-back creation gives its number back. Zero rows: no such company.
UPDATE companies
SET issue_counter = issue_counter + 1
WHERE id = @company_id
RETURNING issue_counter, issue_prefix;

-- name: InsertIssue :one
INSERT INTO issues (id, company_id, issue_number, identifier, title, status, parent_id, project_id,
    project_workspace_id, assignee_agent_id, assignee_user_id, responsible_user_id, created_by_user_id,
    created_by_agent_id, execution_workspace_id, execution_workspace_preference, execution_workspace_settings,
    execution_run_id, checkout_run_id, visibility, privacy_root_issue_id, privacy_parent_issue_id)
VALUES (@id, @company_id, @issue_number, @identifier, @title, @status, @parent_id, @project_id,
    @project_workspace_id, @assignee_agent_id, @assignee_user_id, @responsible_user_id, @created_by_user_id,
    @created_by_agent_id, @execution_workspace_id, @execution_workspace_preference, @execution_workspace_settings,
    @execution_run_id, @checkout_run_id, @visibility, @privacy_root_issue_id, @privacy_parent_issue_id)
RETURNING *;

-- name: LockIssueForChange :one
-- One change of a task at a time, and none while a reservation or the creation of a run
-- rests on its binding: those lock it FOR SHARE. NO KEY UPDATE is enough, since the id
-- never changes: rows that merely refer to the task are not held up. What else the change
-- rests on is read in a later statement. Zero rows: no such task.
SELECT id FROM issues WHERE id = @id FOR NO KEY UPDATE;

-- name: LockIssueAsIs :one
-- The task stays as it is until commit: what a child takes over from its parent, and the
-- binding that a new run of the task will find. Zero rows: no such task.
SELECT id FROM issues WHERE id = @id FOR SHARE;

-- name: LockWorkspaceForBinding :one
-- The workspace may neither close nor be reserved between the decision to bind a task to
-- it and the commit. Zero rows: no such workspace in the company.
SELECT id FROM execution_workspaces WHERE company_id = @company_id AND id = @id FOR SHARE;

-- name: LockIssueTree :one
-- One change of who is whose parent at a time in a company: of two that each close half of
-- a circle, the second finds the first. Zero rows: no such company.
SELECT id FROM companies WHERE id = @company_id FOR NO KEY UPDATE;

-- name: IsIssueInCompany :one
SELECT EXISTS (SELECT FROM issues i WHERE i.company_id = @company_id AND i.id = @id);

-- name: IsAgentInCompany :one
SELECT EXISTS (SELECT FROM agents a WHERE a.company_id = @company_id AND a.id = @id);

-- name: IsRunInCompany :one
SELECT EXISTS (SELECT FROM heartbeat_runs r WHERE r.company_id = @company_id AND r.id = @id);

-- name: AreWorkspacesIsolated :one
-- The setting enableIsolatedWorkspaces, as the transaction finds it.
SELECT enable_isolated_workspaces FROM instance_settings;

-- name: GetSource :one
SELECT * FROM project_workspaces WHERE company_id = @company_id AND id = @id;

-- name: FindDefaultSource :one
-- The source of a task that names none: the one that its project's policy names, else the
-- primary, else the oldest. A policy that names another project's source, or nothing that
-- is an id, names none. Zero rows: the project has no source.
SELECT pw.* FROM project_workspaces pw
JOIN projects p ON p.id = pw.project_id
WHERE pw.company_id = @company_id AND pw.project_id = @project_id
ORDER BY (lower(p.execution_workspace_policy ->> 'defaultProjectWorkspaceId') = pw.id::text) IS TRUE DESC,
         pw.is_primary DESC, pw.created_at, pw.id
LIMIT 1;

-- name: WouldShutOthersOut :one
-- Whether binding a private task to a workspace takes it from people who may read it now:
-- an open task's files are in it, and neither the private task nor a private one above it,
-- whose readers all read the task too, is already among those behind the workspace.
WITH RECURSIVE above AS (
    SELECT i.id, i.privacy_parent_issue_id FROM issues i WHERE i.company_id = @company_id AND i.id = @issue_id
    UNION
    SELECT i.id, i.privacy_parent_issue_id
    FROM above a
    JOIN issues i ON i.company_id = @company_id AND i.id = a.privacy_parent_issue_id AND i.visibility = 'private'
)
SELECT (EXISTS (
    SELECT FROM workspace_privacy_sources s
    JOIN issues i ON i.id = s.issue_id
    WHERE s.workspace_id = @workspace_id AND s.issue_id <> @issue_id AND i.visibility = 'open')
AND NOT EXISTS (
    SELECT FROM workspace_privacy_sources s
    JOIN above a ON a.id = s.issue_id
    WHERE s.workspace_id = @workspace_id))::boolean;

-- name: IsTaskRunning :one
-- Whether a run of the task is running, other than one that is named.
SELECT EXISTS (
    SELECT FROM heartbeat_runs r
    WHERE r.bound_issue_id = @issue_id::uuid AND r.status = 'running'
      AND r.id IS DISTINCT FROM sqlc.narg(but_run_id)::uuid);

-- name: WriteIssue :one
-- Every column that a change may touch, on a row that LockIssueForChange holds; the
-- revision tells when it does not. Zero rows: the row was not locked, which is our fault.
UPDATE issues
SET title = @title,
    status = @status,
    parent_id = @parent_id,
    project_id = @project_id,
    project_workspace_id = @project_workspace_id,
    assignee_agent_id = @assignee_agent_id,
    assignee_user_id = @assignee_user_id,
    responsible_user_id = @responsible_user_id,
    execution_workspace_id = @execution_workspace_id,
    execution_workspace_preference = @execution_workspace_preference,
    execution_workspace_settings = @execution_workspace_settings,
    workspace_binding_revision = @workspace_binding_revision,
    workspace_selection = @workspace_selection,
    workspace_pending_selection = @workspace_pending_selection,
    execution_run_id = @execution_run_id,
    checkout_run_id = @checkout_run_id,
    visibility = @visibility,
    privacy_root_issue_id = @privacy_root_issue_id,
    privacy_parent_issue_id = @privacy_parent_issue_id,
    updated_at = clock_timestamp()
WHERE id = @id AND company_id = @company_id AND workspace_binding_revision = @from_revision
RETURNING *;

-- name: ListIssues :many
SELECT i.* FROM issues i
WHERE i.company_id = @company_id
  AND (sqlc.narg(status)::text IS NULL OR i.status = sqlc.narg(status)::text)
  AND (sqlc.narg(parent_id)::uuid IS NULL OR i.parent_id = sqlc.narg(parent_id)::uuid)
  AND (sqlc.narg(project_id)::uuid IS NULL OR i.project_id = sqlc.narg(project_id)::uuid)
  AND (sqlc.narg(assignee_agent_id)::uuid IS NULL OR i.assignee_agent_id = sqlc.narg(assignee_agent_id)::uuid)
  AND (sqlc.narg(execution_workspace_id)::uuid IS NULL
       OR i.execution_workspace_id = sqlc.narg(execution_workspace_id)::uuid)
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (i.created_at, i.id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
  AND principal_reads_issue(i.company_id, i.id, @reader_type, @reader_id)
ORDER BY i.created_at, i.id
LIMIT @rows;

-- name: AddIssueAccessGrant :execrows
-- Two that grant the same at once: the second waits for the first. Zero rows: it was
-- granted before.
INSERT INTO issue_access_grants (company_id, issue_id, principal_type, principal_id)
VALUES (@company_id, @issue_id, @principal_type, @principal_id)
ON CONFLICT DO NOTHING;

-- name: GetIssueAccessGrant :one
-- A later statement than the one that adds, which does not see the row of another that it
-- waited for. Zero rows: it was taken back meanwhile.
SELECT * FROM issue_access_grants
WHERE company_id = @company_id AND issue_id = @issue_id
  AND principal_type = @principal_type AND principal_id = @principal_id;

-- name: ListIssueAccessGrants :many
SELECT g.* FROM issue_access_grants g
WHERE g.company_id = @company_id AND g.issue_id = @issue_id
  AND (sqlc.narg(after_at)::timestamptz IS NULL
       OR (g.created_at, g.principal_id) > (sqlc.narg(after_at)::timestamptz, sqlc.narg(after_id)::uuid))
ORDER BY g.created_at, g.principal_id
LIMIT @rows;

-- name: RemoveIssueAccessGrant :execrows
-- Zero rows: there was no such grant, which is what was wanted.
DELETE FROM issue_access_grants
WHERE company_id = @company_id AND issue_id = @issue_id
  AND principal_type = @principal_type AND principal_id = @principal_id;
