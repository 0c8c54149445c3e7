-- name: GetServiceRole :one
-- What the role of this connection could do to the history by SQL of its own. The owner of
-- the schema has the rights to delete and truncate, unless it took them from itself.
SELECT
    current_user::text AS name,
    (current_setting('is_superuser') = 'on')::boolean AS is_superuser,
    has_table_privilege(current_user, 'tenures', 'DELETE, TRUNCATE')::boolean AS removes_history;
