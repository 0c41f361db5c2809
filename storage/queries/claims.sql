-- name: renew
-- Renew all claims of a process.
SELECT * FROM {schema}.renew_v2($1, $2, $3, $4, $5);

-- name: hint
-- Take the lock that shows that a worker lives.
SELECT * FROM {schema}.hint_v1($1);

-- name: hinted
-- Whether this session still holds the worker's lock.
SELECT {schema}.hinted_v1($1);

-- name: holders
-- Who holds hinted claims, and whether each still has its lock.
SELECT * FROM {schema}.holders_v1();

-- name: lapsed
-- Threads whose claim has lapsed.
SELECT * FROM {schema}.lapsed_v2($1);

-- name: claims_of
-- Threads that a holder who seems dead has left.
SELECT * FROM {schema}.claims_of_v1($1, $2);

-- name: lapse
-- Take a lapsed thread, or one of a dead holder, and record what was left.
SELECT * FROM {schema}.lapse_v2($1, $2, $3);

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
-- Every broken invariant of the threads that changed within a time, or of all.
SELECT * FROM {schema}.audit_v2($1);

-- name: turn
-- Whether it is this worker's turn to do what one does for all.
SELECT {schema}.turn_v1($1, $2);

-- name: ping
-- Whether the schema is there and answers.
SELECT 1 FROM {schema}.run_transitions LIMIT 1;
