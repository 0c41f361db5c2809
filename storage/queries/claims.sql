-- name: renew
-- Renew all claims of a process.
SELECT * FROM {schema}.renew_v1($1, $2, $3, $4);

-- name: register
-- Say that a worker is there.
SELECT {schema}.register_v1($1, $2, $3, $4, $5);

-- name: unregister
-- Say that a worker has left.
SELECT {schema}.unregister_v1($1);

-- name: disown
-- Let the claims of an earlier life of this process lapse at once.
SELECT {schema}.disown_v1($1);

-- name: audit
-- Every broken invariant.
SELECT * FROM {schema}.audit_v1();

-- name: ping
-- Whether the schema is there and answers.
SELECT 1 FROM {schema}.run_transitions LIMIT 1;
