-- Whose word counts in a company. A principal is as in the other principal_reads_…
-- functions; an agent that acts by a run names it, and reads only while that run is
-- running. A run of NULL asks about the agent itself.
CREATE FUNCTION principal_reads_company(in_company uuid, principal_type text, principal uuid, by_run uuid)
RETURNS boolean LANGUAGE sql STABLE AS $$
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
    END;
$$;
