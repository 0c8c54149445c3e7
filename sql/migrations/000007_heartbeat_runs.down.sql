ALTER TABLE issues
    DROP CONSTRAINT issues_checkout_run_fkey,
    DROP CONSTRAINT issues_execution_run_fkey;
DROP TABLE heartbeat_runs;
DROP FUNCTION guard_heartbeat_run();
