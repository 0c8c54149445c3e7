-- name: NoteSilences :execrows
-- Each silence is told once. Two servers that notice it together meet in its key. Zero
-- rows: no writer fell silent since the last look.
INSERT INTO writer_silences (company_id, workspace_id, epoch, run_id, heard_at)
SELECT t.company_id, t.workspace_id, t.epoch, t.run_id, greatest(r.last_renewed_at, t.started_at)
FROM tenures t
JOIN heartbeat_runs r ON r.company_id = t.company_id AND r.id = t.run_id AND r.finished_at IS NULL
WHERE t.ended_at IS NULL
  AND greatest(r.last_renewed_at, t.started_at) < clock_timestamp() - make_interval(secs => @silent_after_seconds)
  AND NOT EXISTS (
      SELECT FROM writer_silences s
      WHERE s.workspace_id = t.workspace_id AND s.epoch = t.epoch AND s.heard_at = greatest(r.last_renewed_at, t.started_at))
ON CONFLICT ON CONSTRAINT writer_silences_once DO NOTHING;

-- name: EndSilences :execrows
-- A writer that was heard of again is not silent any more, nor is one whose run or tenure
-- ended. Zero rows: all that are silent still are.
UPDATE writer_silences s
SET ended_at = clock_timestamp(), claimed_by = NULL,
    ended_how = CASE WHEN r.last_renewed_at > s.heard_at THEN 'heard' ELSE 'over' END
FROM tenures t
JOIN heartbeat_runs r ON r.company_id = t.company_id AND r.id = t.run_id
WHERE s.ended_at IS NULL AND t.workspace_id = s.workspace_id AND t.epoch = s.epoch
  AND (t.ended_at IS NOT NULL OR r.finished_at IS NOT NULL OR r.last_renewed_at > s.heard_at);

-- name: ClaimSilence :one
-- As ClaimStopRequest. Zero rows: nothing is due.
UPDATE writer_silences s
SET claimed_by = @claim::uuid, attempts = s.attempts + 1, next_attempt_at = clock_timestamp() + interval '2 minutes'
WHERE s.id = (
    SELECT due.id FROM writer_silences due
    WHERE due.ended_at IS NULL AND due.next_attempt_at <= clock_timestamp()
    ORDER BY due.next_attempt_at LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: PostponeSilence :execrows
-- Zero rows: the claim is no longer this attempt's, or the silence ended.
UPDATE writer_silences
SET claimed_by = NULL, last_error_kind = @error_kind::text,
    next_attempt_at = clock_timestamp() + make_interval(secs => @seconds)
WHERE id = @id AND claimed_by = @claim::uuid AND ended_at IS NULL;

-- name: EndSilence :execrows
-- Zero rows: the claim is no longer this attempt's, or the silence ended.
UPDATE writer_silences
SET ended_at = clock_timestamp(), ended_how = @ended_how::text, claimed_by = NULL
WHERE id = @id AND claimed_by = @claim::uuid AND ended_at IS NULL;
