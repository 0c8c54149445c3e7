DROP TRIGGER execution_workspaces_match_tenure_on_update ON execution_workspaces;
DROP TRIGGER execution_workspaces_match_tenure_on_insert ON execution_workspaces;
DROP TABLE tenures;
DROP FUNCTION check_writer_tenure();
DROP FUNCTION record_tenure_event();
DROP FUNCTION refuse_closed_tenure();
DROP FUNCTION guard_tenure();
DROP EXTENSION btree_gist;
