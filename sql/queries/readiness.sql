-- name: GetStoreMarker :one
SELECT store_marker FROM instance_settings;

-- name: SetStoreMarker :one
-- Two servers at their first start: one sets the marker, and the other finds it. Zero
-- rows: it is set.
UPDATE instance_settings SET store_marker = @store_marker::uuid WHERE store_marker IS NULL
RETURNING store_marker;

-- name: HasSnapshots :one
SELECT EXISTS (SELECT FROM snapshots WHERE state <> 'unavailable');
