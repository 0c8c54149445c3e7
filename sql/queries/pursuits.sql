-- What the search for proof that a writer stopped needs to know.

-- name: GetWriterSigns :one
-- Whether the run is still the writer of the epoch, and when it was last heard of. Zero
-- rows: it never was.
SELECT (w.epoch = t.epoch AND w.writer_run_id IS NOT DISTINCT FROM t.run_id)::boolean AS still_writer,
       greatest(r.last_renewed_at, t.started_at)::timestamptz AS heard_at,
       r.finished_at
FROM tenures t
JOIN execution_workspaces w ON w.company_id = t.company_id AND w.id = t.workspace_id
JOIN heartbeat_runs r ON r.company_id = t.company_id AND r.id = t.run_id
WHERE t.company_id = @company_id AND t.workspace_id = @workspace_id AND t.epoch = @epoch AND t.run_id = @run_id;

-- name: ListMachinesOfRun :many
-- The run's machines: whom to ask about each, whether it is proven stopped already,
-- whether the provider ever answered by its id, and whether another run works on the
-- same machine, which then is not ours to stop.
SELECT l.id, coalesce(l.provider, '')::text AS provider, coalesce(l.provider_lease_id, '')::text AS provider_lease_id,
       e.config AS environment_config, coalesce(p.missing, '')::text AS missing,
       coalesce(seen.seen_config = sha256(convert_to(e.config::text, 'UTF8')), false)::boolean AS known_here,
       (EXISTS (SELECT FROM environment_leases o
                LEFT JOIN heartbeat_runs u ON u.id = o.heartbeat_run_id
                WHERE o.provider_lease_id = l.provider_lease_id AND o.provider = l.provider
                  AND o.id <> l.id AND o.status = 'active' AND o.heartbeat_run_id IS DISTINCT FROM l.heartbeat_run_id
                  AND u.finished_at IS NULL)
        OR EXISTS (SELECT FROM heartbeat_runs u WHERE u.id = l.replaced_by_run_id AND u.finished_at IS NULL))::boolean AS in_use
FROM environment_leases l
JOIN environments e ON e.id = l.environment_id
JOIN lease_proofs p ON p.lease_id = l.id
LEFT JOIN lease_sightings seen ON seen.lease_id = l.id
WHERE l.company_id = @company_id AND l.heartbeat_run_id = @run_id::uuid
ORDER BY l.id;

-- name: NoteSighting :execrows
-- Under the configuration that was asked with, which may not be the environment's any
-- more. Zero rows never come: the newest sighting counts.
INSERT INTO lease_sightings (lease_id, company_id, seen_config)
SELECT l.id, l.company_id, sha256(convert_to(CAST(sqlc.arg(environment_config)::jsonb AS text), 'UTF8'))
FROM environment_leases l
WHERE l.id = @lease_id
ON CONFLICT (lease_id) DO UPDATE SET seen_at = excluded.seen_at, seen_config = excluded.seen_config;

-- name: CountUnfinishedWriters :one
-- For those who watch the service: from the tenures themselves, so that the numbers grow
-- also when no sweep looks.
SELECT
    (SELECT count(*)
     FROM tenures t
     JOIN heartbeat_runs r ON r.company_id = t.company_id AND r.id = t.run_id AND r.finished_at IS NULL
     WHERE t.ended_at IS NULL
       AND greatest(r.last_renewed_at, t.started_at) < clock_timestamp() - make_interval(secs => @silent_after_seconds))::bigint
        AS silent,
    (SELECT count(*) FROM stop_requests s WHERE s.settled_at IS NULL AND s.state <> 'alert' AND s.deadline > clock_timestamp())::bigint
        AS stop_requested,
    (SELECT count(*) FROM stop_requests s WHERE s.settled_at IS NULL AND s.state <> 'alert' AND s.deadline <= clock_timestamp())::bigint
        AS stop_overdue,
    (SELECT count(*) FROM stop_requests s WHERE s.settled_at IS NULL AND s.state = 'alert')::bigint AS stop_alert,
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(s.deadline)), 0)
     FROM stop_requests s WHERE s.settled_at IS NULL AND s.deadline <= clock_timestamp())::float8 AS oldest_overdue_seconds;
