-- name: create_grant
-- Make a grant.
SELECT * FROM {schema}.create_grant_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: get_grant
-- One grant, if the principal may see it.
SELECT g.*, {schema}._grant_status(g) AS status FROM {schema}.grants g
 WHERE g.id = $1 AND {schema}._sees_grant(g, $2, $3, $4);

-- name: list_grants
-- The grants that a principal may see, newest first, before one.
SELECT g.*, {schema}._grant_status(g) AS status FROM {schema}.grants g
 WHERE g.workspace = $1 AND ($4::uuid IS NULL OR g.id < $4) AND {schema}._sees_grant(g, $1, $2, $3)
 ORDER BY g.id DESC LIMIT $5;

-- name: revoke_grant
-- Let a grant be used no more. Whoever is just taking a use of it comes first, and the next one finds it revoked.
UPDATE {schema}.grants SET revoked_at = clock_timestamp(), revoked_by = $3
 WHERE id = $1 AND workspace = $2 AND revoked_at IS NULL;
