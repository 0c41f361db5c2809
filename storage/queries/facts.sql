-- name: facts_after
-- The next facts of a thread.
SELECT seq, run_id, fence, kind, data, at FROM {schema}.facts WHERE thread_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- name: heads
-- Where these threads stand.
SELECT id, log_seq, fence, state FROM {schema}.threads WHERE id = ANY ($1::uuid[]);
