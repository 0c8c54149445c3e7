DROP TRIGGER environment_leases_wake_line ON environment_leases;
DROP FUNCTION wake_line_behind_lease;
DROP TRIGGER heartbeat_runs_leave_line ON heartbeat_runs;
DROP FUNCTION leave_line_when_ended;
DROP TRIGGER execution_workspaces_wake_line ON execution_workspaces;
DROP FUNCTION wake_line_of_workspace;
DROP FUNCTION wake_line;
DROP VIEW waiting_line;
DROP TABLE reservation_places;
