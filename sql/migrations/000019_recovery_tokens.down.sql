DROP TABLE recovery_tokens;
DROP FUNCTION record_recovery_token_event();
