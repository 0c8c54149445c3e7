DROP TABLE environment_leases;
DROP FUNCTION guard_environment_lease();
