-- Who may read what, said once. A principal is ('agent', id), ('user', id), or
-- ('all', any id) for operators and auditors, who read everything. Callers check before
-- that an agent is of the company and that a user is an active member of it.
--
-- These are PL/pgSQL for the sake of their plans: a function in plain SQL is planned anew
-- by each statement that calls it, which cost a reservation more than all its other work.

CREATE FUNCTION principal_reads_project(in_company uuid, in_project uuid, principal_type text, principal uuid)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT EXISTS (
            SELECT FROM projects p
            WHERE p.company_id = $1 AND p.id = $2
              AND ($3 = 'all' OR p.visibility = 'open' OR EXISTS (
                  SELECT FROM project_members m
                  WHERE m.project_id = p.id AND m.principal_type = $3 AND m.principal_id = $4))));
END;
$$;

-- A private issue is readable for those it names, for its access grants and for the
-- members of its private project; and, downwards, for whoever may read a private issue
-- above it. The assignee of an open child gains nothing.
CREATE FUNCTION principal_reads_issue(in_company uuid, in_issue uuid, principal_type text, principal uuid)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        WITH RECURSIVE chain AS (
            SELECT i.id, i.company_id, i.visibility, i.project_id, i.privacy_parent_issue_id, i.assignee_agent_id,
                   i.assignee_user_id, i.responsible_user_id, i.created_by_user_id
            FROM issues i
            WHERE i.company_id = $1 AND i.id = $2
            UNION
            SELECT i.id, i.company_id, i.visibility, i.project_id, i.privacy_parent_issue_id, i.assignee_agent_id,
                   i.assignee_user_id, i.responsible_user_id, i.created_by_user_id
            FROM chain c
            JOIN issues i ON i.company_id = c.company_id AND i.id = c.privacy_parent_issue_id
            WHERE c.visibility = 'private' AND i.visibility = 'private'
        )
        SELECT EXISTS (
            SELECT
            FROM chain c
            LEFT JOIN projects p ON p.id = c.project_id
            WHERE $3 = 'all'
               OR (c.id = $2 AND c.visibility = 'open' AND (p.id IS NULL OR p.visibility = 'open'))
               OR ($3 = 'agent' AND c.assignee_agent_id = $4)
               OR ($3 = 'user' AND $4 IN (c.assignee_user_id, c.responsible_user_id, c.created_by_user_id))
               OR EXISTS (
                   SELECT FROM issue_access_grants g
                   WHERE g.issue_id = c.id AND g.principal_type = $3 AND g.principal_id = $4)
               OR (p.visibility = 'private' AND EXISTS (
                   SELECT FROM project_members m
                   WHERE m.project_id = p.id AND m.principal_type = $3 AND m.principal_id = $4))));
END;
$$;

-- The boundary around a workspace's files: its project, and every issue ever bound to it
-- or its origin. Most have open issues alone: only of what is private it is asked for whom.
CREATE FUNCTION principal_reads_workspace(in_company uuid, in_workspace uuid, principal_type text, principal uuid)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT EXISTS (
            SELECT FROM execution_workspaces w
            WHERE w.company_id = $1 AND w.id = $2
              AND ($3 = 'all' OR (
                  (w.project_id IS NULL OR principal_reads_project($1, w.project_id, $3, $4))
                  AND NOT EXISTS (
                      SELECT FROM workspace_privacy_sources s
                      JOIN issues i ON i.id = s.issue_id
                      LEFT JOIN projects p ON p.id = i.project_id
                      WHERE s.workspace_id = w.id
                        AND (i.visibility = 'private' OR p.visibility = 'private')
                        AND NOT principal_reads_issue($1, s.issue_id, $3, $4))))));
END;
$$;

-- Whose word counts in a company. An agent that acts by a run names it, and reads only
-- while that run is running; a run of NULL asks about the agent itself.
CREATE FUNCTION principal_reads_company(in_company uuid, principal_type text, principal uuid, by_run uuid)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT CASE $2
            WHEN 'all' THEN EXISTS (SELECT FROM companies c WHERE c.id = $1)
            WHEN 'agent' THEN EXISTS (SELECT FROM agents a WHERE a.company_id = $1 AND a.id = $3)
                AND ($4 IS NULL OR EXISTS (
                    SELECT FROM heartbeat_runs r
                    WHERE r.company_id = $1 AND r.id = $4 AND r.agent_id = $3 AND r.status = 'running'))
            WHEN 'user' THEN EXISTS (
                SELECT FROM company_memberships m
                WHERE m.company_id = $1 AND m.principal_type = 'user' AND m.principal_id = $3 AND m.status = 'active')
            ELSE false
        END);
END;
$$;
