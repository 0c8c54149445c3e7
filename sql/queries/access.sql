-- What a principal may read. It is passed as (principal_type, principal, run_id): see
-- the functions principal_reads_…; run_id is NULL for all but runs.

-- name: ReadsCompany :one
SELECT principal_reads_company(@company_id::uuid, @principal_type::text, @principal::uuid, sqlc.narg(run_id)::uuid)::boolean;

-- name: GetReadableProject :one
-- No row: unknown, of a company that the principal is not in, or private to others.
SELECT p.*
FROM projects p
WHERE p.id = @id
  AND principal_reads_company(p.company_id, @principal_type::text, @principal::uuid, sqlc.narg(run_id)::uuid)
  AND principal_reads_project(p.company_id, p.id, @principal_type::text, @principal::uuid);

-- name: GetReadableIssue :one
-- No row: unknown, of a company that the principal is not in, or private to others.
SELECT i.*
FROM issues i
WHERE i.id = @id
  AND principal_reads_company(i.company_id, @principal_type::text, @principal::uuid, sqlc.narg(run_id)::uuid)
  AND principal_reads_issue(i.company_id, i.id, @principal_type::text, @principal::uuid);

-- name: GetReadableWorkspace :one
-- No row: unknown, of a company that the principal is not in, or some task behind it
-- or its project is private to others.
SELECT w.*
FROM execution_workspaces w
WHERE w.id = @id
  AND principal_reads_company(w.company_id, @principal_type::text, @principal::uuid, sqlc.narg(run_id)::uuid)
  AND principal_reads_workspace(w.company_id, w.id, @principal_type::text, @principal::uuid);

-- name: GetStanding :one
-- What a principal is in a company: the company's own status, and its membership there
-- if it has one. No row: no such company.
SELECT c.status AS company_status, m.status AS membership_status, m.membership_role
FROM companies c
LEFT JOIN company_memberships m
    ON m.company_id = c.id AND m.principal_type = @principal_type AND m.principal_id = @principal
WHERE c.id = @company_id;

-- name: IsRunningOnIssue :one
-- Whether the agent works on the task right now; with a run, whether that run does.
SELECT EXISTS (
    SELECT FROM heartbeat_runs r
    WHERE r.company_id = @company_id AND r.agent_id = @agent_id AND r.bound_issue_id = @issue_id::uuid AND r.status = 'running'
      AND (sqlc.narg(run_id)::uuid IS NULL OR r.id = sqlc.narg(run_id)::uuid));

-- name: IsRunningOnTaskOfWorkspace :one
-- Whether the agent works on a task that is bound to the workspace right now; with a
-- run, whether that run does.
SELECT EXISTS (
    SELECT FROM heartbeat_runs r
    JOIN issues i ON i.company_id = r.company_id AND i.id = r.bound_issue_id
    WHERE r.company_id = @company_id AND r.agent_id = @agent_id AND r.status = 'running'
      AND i.execution_workspace_id = @workspace_id::uuid
      AND (sqlc.narg(run_id)::uuid IS NULL OR r.id = sqlc.narg(run_id)::uuid));

-- name: IsIssueBelow :one
-- Whether the task is root, or has root somewhere above it.
WITH RECURSIVE above AS (
    SELECT i.id, i.company_id, i.parent_id FROM issues i WHERE i.company_id = @company_id AND i.id = @issue_id
    UNION
    SELECT p.id, p.company_id, p.parent_id
    FROM above a JOIN issues p ON p.company_id = a.company_id AND p.id = a.parent_id
)
SELECT EXISTS (SELECT FROM above WHERE above.id = @root_id::uuid);
