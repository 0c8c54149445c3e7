DROP VIEW lease_cleanup_debt;
DROP TABLE lease_cleanups;
DROP FUNCTION guard_lease_cleanup();
DROP INDEX environment_leases_by_machine;
DROP INDEX environment_leases_unsettled;
DROP SCHEMA river CASCADE;
