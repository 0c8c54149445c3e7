ALTER TABLE execution_workspaces DROP CONSTRAINT execution_workspaces_snapshot_fkey;
DROP TABLE snapshots;
DROP FUNCTION record_snapshot_event();
DROP FUNCTION guard_snapshot();
