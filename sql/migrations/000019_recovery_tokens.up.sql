-- A recovery token saves in the name of one writer that ended: for one tenure, as long as
-- it is open, and for nothing else. Like operators' tokens it is stored only as a hash.
-- The row is also the record of who recovered, and at what risk.
CREATE TABLE recovery_tokens (
    id            uuid PRIMARY KEY,
    company_id    uuid NOT NULL,
    workspace_id  uuid NOT NULL,
    epoch         bigint NOT NULL,
    run_id        uuid NOT NULL,
    secret_hash   bytea NOT NULL,
    reason        text,
    -- An operator went on without proof that the writer stopped, and this is what missed.
    risk_accepted boolean NOT NULL,
    missing_proof jsonb NOT NULL DEFAULT '[]',
    created_by    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL DEFAULT clock_timestamp() + interval '24 hours',
    CONSTRAINT recovery_tokens_secret_hash_key UNIQUE (secret_hash),
    CONSTRAINT recovery_tokens_secret_hash_form CHECK (octet_length(secret_hash) = 32),
    CONSTRAINT recovery_tokens_workspace_fkey FOREIGN KEY (company_id, workspace_id)
        REFERENCES execution_workspaces (company_id, id),
    CONSTRAINT recovery_tokens_run_fkey FOREIGN KEY (company_id, run_id) REFERENCES heartbeat_runs (company_id, id),
    CONSTRAINT recovery_tokens_missing_proof_array CHECK (jsonb_typeof(missing_proof) = 'array')
);

CREATE TRIGGER recovery_tokens_append_only BEFORE UPDATE OR DELETE ON recovery_tokens
    FOR EACH ROW EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER recovery_tokens_no_truncate BEFORE TRUNCATE ON recovery_tokens
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_history_change();
CREATE TRIGGER recovery_tokens_of_open_tenure AFTER INSERT ON recovery_tokens
    FOR EACH ROW EXECUTE FUNCTION require_open_tenure();

CREATE FUNCTION record_recovery_token_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO events (company_id, kind, workspace_id, run_id, epoch, actor, data)
    VALUES (NEW.company_id, 'recovery.opened', NEW.workspace_id, NEW.run_id, NEW.epoch, NEW.created_by,
            jsonb_strip_nulls(jsonb_build_object('recoveryTokenId', NEW.id, 'reason', NEW.reason,
                'riskAccepted', NEW.risk_accepted, 'missingProof', NEW.missing_proof)));
    RETURN NULL;
END;
$$;

CREATE TRIGGER recovery_tokens_event AFTER INSERT ON recovery_tokens
    FOR EACH ROW EXECUTE FUNCTION record_recovery_token_event();
