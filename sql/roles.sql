-- The three roles. berth_owner owns the schema and runs migrations; berth is the
-- service, owns nothing and cannot remove history; berth_auditor reads, and nobody logs
-- in as it: an auditor's own login is made a member of it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'berth_owner') THEN
        CREATE ROLE berth_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'berth') THEN
        CREATE ROLE berth LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'berth_auditor') THEN
        CREATE ROLE berth_auditor NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
    END IF;
END;
$$;
