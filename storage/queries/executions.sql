-- name: execute
-- Start an execution.
SELECT * FROM {schema}.execute_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: get_execution
-- One execution, if it is the principal's or the principal is an operator, with what its status follows from: where the
-- newest run of each of its threads stands, and what the newest one of its first thread returned.
SELECT e.*, n.* FROM {schema}.executions e, LATERAL {schema}._standing(e.id) n
 WHERE e.id = $1 AND e.workspace = $2 AND (e.principal = $3 OR 'operator' = ANY ($4::text[]));

-- name: list_executions
-- The executions that a principal may see by id, the highest first, below one.
SELECT e.*, n.* FROM (
    SELECT x.* FROM {schema}.executions x
     WHERE x.workspace = $1 AND (x.principal = $2 OR 'operator' = ANY ($3::text[])) AND ($4::uuid IS NULL OR x.id < $4)
     ORDER BY x.id DESC LIMIT $5) e, LATERAL {schema}._standing(e.id) n
 ORDER BY e.id DESC;

-- name: threads_of_execution
-- The threads of an execution that a principal may see, oldest first, behind one of them.
SELECT t.* FROM {schema}.threads t
 WHERE t.execution = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
   AND ($5::uuid IS NULL OR (t.created_at, t.id) > (SELECT x.created_at, x.id FROM {schema}.threads x WHERE x.id = $5))
 ORDER BY t.created_at, t.id LIMIT $6;

-- name: runs_of_threads
-- The newest runs of each of these threads, newest first.
SELECT r.*, r.stop_cut IS NOT NULL AS stop_requested,
       (SELECT f.data -> 'output' FROM {schema}.facts f WHERE f.run_id = r.id AND f.kind = 'run_ended') AS output
  FROM unnest($1::uuid[]) AS w (thread), LATERAL (
       SELECT x.* FROM {schema}.runs x WHERE x.thread_id = w.thread ORDER BY x.run_no DESC LIMIT $2) r
 ORDER BY r.id DESC;

-- name: attempts_of_runs
-- The newest attempts of each of these runs, newest first.
SELECT a.* FROM unnest($1::uuid[]) AS w (run), LATERAL (
       SELECT x.* FROM {schema}.attempts x WHERE x.run_id = w.run ORDER BY x.attempt DESC LIMIT $2) a
 ORDER BY a.attempt DESC;

-- name: requests_of_runs
-- The newest requests of each of these runs, newest first.
SELECT q.* FROM unnest($1::uuid[]) AS w (run), LATERAL (
       SELECT x.* FROM {schema}.requests x WHERE x.run_id = w.run ORDER BY x.created_at DESC, x.id DESC LIMIT $2) q
 ORDER BY q.created_at DESC, q.id DESC;
