-- name: save_record
-- Write a record of a run.
SELECT * FROM {schema}.save_record_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: get_record
-- One record, if the principal may see its thread.
SELECT {schema}._record_state(d.run_id) AS state, d.body
  FROM {schema}.run_records d JOIN {schema}.runs r ON r.id = d.run_id JOIN {schema}.threads t ON t.id = r.thread_id
 WHERE d.run_id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;

-- name: list_records
-- Records that a principal may see, newest first.
SELECT {schema}._record_state(d.run_id) AS state, d.body
  FROM {schema}.run_records d JOIN {schema}.runs r ON r.id = d.run_id JOIN {schema}.threads t ON t.id = r.thread_id
  LEFT JOIN {schema}.thread_records x ON x.thread_id = t.id
 WHERE t.workspace = $1 AND ($4::text IS NULL OR x.deployment = $4) AND ($5::text IS NULL OR r.status = $5)
   AND {schema}._access(t.id, t.owner, $2, $3) IS NOT NULL
 ORDER BY r.created_at DESC, r.id DESC LIMIT $6 OFFSET $7;

-- name: child_records
-- Records that a principal may see of runs that name another one as their parent, oldest first.
SELECT {schema}._record_state(d.run_id) AS state, d.body
  FROM {schema}.run_records d JOIN {schema}.runs r ON r.id = d.run_id JOIN {schema}.threads t ON t.id = r.thread_id
 WHERE d.parent_run = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY r.created_at, r.id LIMIT $5;

-- name: count_pending_records
-- How many records that a principal may see are pending.
SELECT count(*)
  FROM {schema}.run_records d JOIN {schema}.runs r ON r.id = d.run_id JOIN {schema}.threads t ON t.id = r.thread_id
  LEFT JOIN {schema}.thread_records x ON x.thread_id = t.id
 WHERE r.status = 'pending' AND t.workspace = $1 AND ($4::text IS NULL OR x.deployment = $4)
   AND {schema}._access(t.id, t.owner, $2, $3) IS NOT NULL;

-- name: record_checkpoint
-- A record as it stood, if the principal may see its thread.
SELECT c.state, c.body FROM {schema}.record_checkpoints c JOIN {schema}.threads t ON t.id = c.thread_id
 WHERE c.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;

-- name: record_checkpoints
-- The records of a thread's checkpoints, oldest first, behind one of them.
SELECT c.state, c.body FROM {schema}.record_checkpoints c JOIN {schema}.threads t ON t.id = c.thread_id
 WHERE c.thread_id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
   AND ($5::uuid IS NULL OR c.n > (SELECT x.n FROM {schema}.record_checkpoints x WHERE x.id = $5 AND x.thread_id = $1))
 ORDER BY c.n LIMIT $6;

-- name: latest_record_checkpoint
-- The record of a thread's newest checkpoint.
SELECT c.state, c.body FROM {schema}.record_checkpoints c JOIN {schema}.threads t ON t.id = c.thread_id
 WHERE c.thread_id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY c.n DESC LIMIT 1;

-- name: resolve_thread
-- Find or make a thread, and merge into it.
SELECT * FROM {schema}.resolve_thread_v1($1, $2, $3, $4, $5, $6);
