-- name: GetTenureAtEpoch :one
-- Zero rows: nobody was the writer at that epoch.
SELECT * FROM tenures WHERE company_id = @company_id AND workspace_id = @workspace_id AND epoch = @epoch;

-- name: InsertRecoveryToken :one
INSERT INTO recovery_tokens (id, company_id, workspace_id, epoch, run_id, secret_hash, reason, risk_accepted,
    missing_proof, created_by)
VALUES (@id, @company_id, @workspace_id, @epoch, @run_id, @secret_hash, @reason, @risk_accepted, @missing_proof, @created_by)
RETURNING *;

-- name: GetUsableRecoveryTokenByHash :one
-- Zero rows: unknown or expired, by the database's clock. Whether its tenure is still
-- open is asked where the token is used.
SELECT * FROM recovery_tokens WHERE secret_hash = @secret_hash AND expires_at > clock_timestamp();

-- name: LockEndedRun :one
-- A run that ended stays ended, and gets no lease while it is locked. Zero rows: it goes on.
SELECT * FROM heartbeat_runs
WHERE company_id = @company_id AND id = @run_id AND finished_at IS NOT NULL
FOR SHARE;
