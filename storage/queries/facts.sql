-- name: facts_after
-- The next facts of a thread.
SELECT f.seq, f.run_id, f.fence, f.kind, f.data, f.at, {schema}._admission(r) AS admission
  FROM {schema}.facts f LEFT JOIN {schema}.runs r ON r.id = f.run_id
 WHERE f.thread_id = $1 AND f.seq > $2 ORDER BY f.seq LIMIT $3;

-- name: heads
-- Where these threads stand.
SELECT id, log_seq, fence, state FROM {schema}.threads WHERE id = ANY ($1::uuid[]);
