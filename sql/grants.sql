-- What each role may do. Everything is taken back first, so that this file is the
-- whole truth: a right that is not named here does not exist.

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, berth, berth_auditor;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC, berth, berth_auditor;
REVOKE CREATE ON SCHEMA public FROM PUBLIC, berth, berth_auditor;
GRANT USAGE ON SCHEMA public TO berth, berth_auditor;

-- The service: rows that people edit.
GRANT SELECT, INSERT, UPDATE ON
    companies, agents, projects, project_workspaces, environments, company_memberships, permission_grants, issues,
    tokens, signing_keys
    TO berth;
GRANT SELECT, INSERT, DELETE ON project_members, issue_access_grants, idempotency_keys TO berth;
GRANT DELETE ON permission_grants TO berth;
GRANT SELECT, UPDATE ON instance_settings TO berth;
GRANT SELECT ON schema_migrations, lease_proofs, lease_cleanup_debt, waiting_line TO berth;
GRANT SELECT, INSERT, UPDATE, DELETE ON reservation_places TO berth;
GRANT SELECT, INSERT, UPDATE ON lease_sightings TO berth;

-- The service: rows that rules guard, and that are never deleted.
GRANT SELECT, INSERT, UPDATE ON execution_workspaces, heartbeat_runs, environment_leases, snapshots, lease_cleanups
    TO berth;

-- The service: history. It is written once, and a tenure is closed once.
GRANT SELECT, INSERT ON termination_receipts, workspace_privacy_sources, events, tenures, refusals TO berth;
GRANT SELECT, INSERT ON stop_requests, writer_silences, recovery_tokens TO berth;
GRANT UPDATE (state, attempts, next_attempt_at, claimed_by, last_error_kind, alerted_at, settled_at) ON stop_requests TO berth;
GRANT UPDATE (attempts, next_attempt_at, claimed_by, last_error_kind, ended_at, ended_how) ON writer_silences TO berth;
GRANT UPDATE (ended_at, ended_how, ended_by, ended_reason, unsaved_work, unproven, proof) ON tenures TO berth;
GRANT UPDATE (count, last_at) ON refusals TO berth;

-- The auditor: the history and what it is about; no secrets, no answers kept for replay.
GRANT SELECT ON
    companies, agents, projects, project_members, project_workspaces, company_memberships, permission_grants, issues,
    issue_access_grants, heartbeat_runs, environment_leases, termination_receipts, execution_workspaces,
    workspace_privacy_sources, snapshots, tenures, events, refusals, lease_proofs, lease_cleanups, lease_cleanup_debt,
    reservation_places, waiting_line, stop_requests, writer_silences, lease_sightings, schema_migrations
    TO berth_auditor;
GRANT SELECT (id, name, driver, status, created_at, updated_at) ON environments TO berth_auditor;
GRANT SELECT (id, name, role, user_id, created_by, created_at, expires_at, last_used_at, revoked_at) ON tokens
    TO berth_auditor;
GRANT SELECT (id, company_id, workspace_id, epoch, run_id, reason, risk_accepted, missing_proof, created_by, created_at,
    expires_at) ON recovery_tokens TO berth_auditor;

-- The queue of background work, which is no history and nobody's but the service's.
REVOKE ALL ON SCHEMA river FROM PUBLIC, berth, berth_auditor;
REVOKE ALL ON ALL TABLES IN SCHEMA river FROM PUBLIC, berth, berth_auditor;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA river FROM PUBLIC, berth, berth_auditor;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA river FROM PUBLIC, berth, berth_auditor;
GRANT USAGE ON SCHEMA river TO berth;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA river TO berth;
REVOKE INSERT, UPDATE, DELETE ON river.river_migration FROM berth;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA river TO berth;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA river TO berth;
