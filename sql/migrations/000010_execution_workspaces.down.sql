DROP TRIGGER issues_remember_binding_on_update ON issues;
DROP TRIGGER issues_remember_binding_on_insert ON issues;
DROP TABLE workspace_privacy_sources;
ALTER TABLE environment_leases DROP CONSTRAINT environment_leases_workspace_fkey;
ALTER TABLE issues DROP CONSTRAINT issues_execution_workspace_fkey;
DROP TABLE execution_workspaces;
DROP FUNCTION remember_workspace_origin();
DROP FUNCTION remember_bound_issue();
DROP FUNCTION guard_execution_workspace();
