-- name: stop
-- Ask a run, or whatever runs on a thread, to stop.
SELECT * FROM {schema}.stop_v1($1, $2, $3, $4, $5, $6, $7);

-- name: get_run
-- One run, if the principal may see its thread.
SELECT r.*, r.stop_cut IS NOT NULL AS stop_requested FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;

-- name: tools_of_run
-- For each tool call that the model asked for in a run: when it began and how it returned, as far as is known.
SELECT c.call ->> 'id' AS call_id, r.ended_at IS NOT NULL AS ended,
       EXISTS (SELECT 1 FROM {schema}.facts b WHERE b.run_id = $1 AND b.kind = 'tool_called'
                  AND b.data ->> 'call_id' = c.call ->> 'id') AS called,
       EXISTS (SELECT 1 FROM {schema}.facts e WHERE e.run_id = $1 AND e.kind = 'tool_returned'
                  AND e.data ->> 'call_id' = c.call ->> 'id') AS returned
  FROM {schema}.runs r JOIN {schema}.facts f ON f.run_id = r.id, jsonb_array_elements(f.data -> 'calls') AS c (call)
 WHERE r.id = $1 AND f.kind = 'model_called' ORDER BY f.seq;

-- name: claim
-- Take a thread's claim and start its pending run.
SELECT * FROM {schema}.claim_v1($1, $2, $3, $4, $5, $6);

-- name: record
-- Record what a run did.
SELECT * FROM {schema}.record_v1($1, $2, $3, $4, $5, $6, $7);

-- name: inbox
-- What waits for the run under this claim.
SELECT {schema}.inbox_v1($1, $2);

-- name: end_run
-- End a run, or go on with it.
SELECT * FROM {schema}.end_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: release
-- Give a claim up early.
SELECT * FROM {schema}.release_v1($1, $2, $3, $4);

-- name: lapsed
-- Threads whose claim has lapsed.
SELECT * FROM {schema}.lapsed_v1($1);

-- name: lapse
-- Take a lapsed thread and record what its holder left.
SELECT * FROM {schema}.lapse_v1($1, $2);

-- name: pending
-- Threads whose pending run nobody took yet.
SELECT * FROM {schema}.pending_v1($1, $2);

-- name: history
-- A thread's history up to a chunk.
SELECT messages FROM {schema}.history WHERE thread_id = $1 AND chunk <= $2 ORDER BY chunk;

-- name: history_chunks
-- How many chunks of history a thread has, if the principal may see it.
SELECT t.history_chunks FROM {schema}.threads t
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;
