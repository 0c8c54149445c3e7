-- The check at the end of every transaction that changes a writer, without turning the
-- whole row into JSON to find one column of it.
CREATE OR REPLACE FUNCTION check_writer_tenure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    workspace uuid;
BEGIN
    IF TG_TABLE_NAME = 'tenures' THEN
        workspace := NEW.workspace_id;
    ELSE
        workspace := NEW.id;
    END IF;
    IF EXISTS (
        SELECT
        FROM execution_workspaces w
        LEFT JOIN tenures t ON t.workspace_id = w.id AND t.ended_at IS NULL
        WHERE w.id = workspace
          AND (w.writer_run_id IS DISTINCT FROM t.run_id OR (t.id IS NOT NULL AND w.epoch <> t.epoch))) THEN
        RAISE EXCEPTION 'workspace %: its writer and its open tenure differ', workspace
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tenures_match_writer';
    END IF;
    RETURN NULL;
END;
$$;
