-- name: remote_ask
-- Ask for a call under a claim.
SELECT * FROM {schema}.remote_ask_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: remote_take
-- Take calls of a queue, for good.
SELECT * FROM {schema}.remote_take_v1($1, $2, $3, $4);

-- name: remote_beat
-- Say that an executor lives; hear what nobody waits for any more.
SELECT * FROM {schema}.remote_beat_v1($1, $2, $3, $4, $5, $6);

-- name: remote_finish
-- Record how a call came out.
SELECT {schema}.remote_finish_v1($1, $2, $3, $4);

-- name: remote_give_up
-- Give a call up, unless it has ended.
SELECT * FROM {schema}.remote_give_up_v1($1, $2, $3, $4);

-- name: remote_ended
-- Which of these calls have ended, and how.
SELECT * FROM {schema}.remote_ended_v1($1, $2);

-- name: remote_tidy
-- End what nobody waits for any more.
SELECT {schema}.remote_tidy_v1($1);
