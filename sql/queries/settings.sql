-- name: GetSettings :one
SELECT enable_isolated_workspaces, updated_at FROM instance_settings;

-- name: UpdateSettings :one
-- The one row there is.
UPDATE instance_settings
SET enable_isolated_workspaces = coalesce(sqlc.narg(enable_isolated_workspaces), enable_isolated_workspaces),
    updated_at = clock_timestamp()
RETURNING enable_isolated_workspaces, updated_at;
