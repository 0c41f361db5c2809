-- name: stop
-- Ask a run, or whatever runs on a thread, to stop.
SELECT * FROM {schema}.stop_v1($1, $2, $3, $4, $5, $6, $7);

-- name: get_run
-- One run, if the principal may see its thread, with what it returned.
SELECT r.*, r.stop_cut IS NOT NULL AS stop_requested,
       (SELECT f.data -> 'output' FROM {schema}.facts f WHERE f.run_id = r.id AND f.kind = 'run_ended') AS output
  FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id
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
-- Take a thread's claim and start its pending run; with how long that has waited since it was made.
SELECT c.*, extract(epoch FROM clock_timestamp() - r.created_at)::float8 AS waited_s
  FROM {schema}.claim_v4($1, $2, $3, $4, $5, $6, $7, $8) AS c LEFT JOIN {schema}.runs r ON r.id = c.run;

-- name: record
-- Record what a run did.
SELECT * FROM {schema}.record_v2($1, $2, $3, $4, $5, $6, $7, $8);

-- name: settle
-- Say what a model's call came to.
SELECT {schema}.settle_v1($1, $2, $3, $4);

-- name: inbox
-- What waits for the run under this claim.
SELECT {schema}.inbox_v1($1, $2);

-- name: end_run
-- End a run, or go on with it; with how long it has lasted.
SELECT e.*, extract(epoch FROM clock_timestamp() - r.created_at)::float8 AS lasted_s
  FROM {schema}.end_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS e LEFT JOIN {schema}.runs r ON r.id = $2;

-- name: release
-- Give a claim up early.
SELECT * FROM {schema}.release_v1($1, $2, $3, $4);

-- name: pending
-- Threads whose pending run nobody took yet.
SELECT * FROM {schema}.pending_v1($1, $2);

-- name: history
-- A thread's history as it stands at a chunk.
SELECT h.messages FROM {schema}._spans($1, $2) s JOIN {schema}.history h ON h.thread_id = $1 AND h.chunk BETWEEN s.lo AND s.hi
 ORDER BY h.chunk;

-- name: history_chunks
-- How many chunks of history a thread has, if the principal may see it.
SELECT t.history_chunks FROM {schema}.threads t
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;

-- name: hand_over
-- Hand a run over to another worker; with how long it has lasted.
SELECT h.*, extract(epoch FROM clock_timestamp() - r.created_at)::float8 AS lasted_s
  FROM {schema}.hand_over_v2($1, $2, $3, $4, $5, $6, $7, $8) AS h LEFT JOIN {schema}.runs r ON r.id = $2;

-- name: partial
-- Keep what the agent is saying.
SELECT {schema}.partial_v1($1, $2, $3);

-- name: holds
-- Whether a claim is the thread's present one.
SELECT EXISTS (SELECT 1 FROM {schema}.claims WHERE thread_id = $1 AND claim_id = $2);

-- name: hold
-- Hold a thread for code of one's own.
SELECT * FROM {schema}.hold_v3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: call_facts
-- What the log says of these tool calls, where it belongs to the history as it stands.
SELECT kind, data FROM {schema}.facts
 WHERE thread_id = $1 AND NOT EXISTS (SELECT 1 FROM {schema}._left($1) l WHERE seq > l.after AND seq <= l.upto)
   AND (kind IN ('tool_called', 'tool_returned', 'request_opened', 'request_answered') AND data ->> 'call_id' = ANY ($2::text[])
        OR kind = 'model_called' AND EXISTS (SELECT 1 FROM jsonb_array_elements(data -> 'calls') AS c (call)
                                              WHERE c.call ->> 'id' = ANY ($2::text[])))
 ORDER BY seq;

-- name: attempts
-- The attempts of a run, oldest first.
SELECT * FROM {schema}.attempts WHERE run_id = $1 ORDER BY attempt;

-- name: explain
-- What is known of a run beyond its row: who asked it to stop, what holders that have gone left, who holds it now.
SELECT (SELECT f.data || jsonb_build_object('at', f.at) FROM {schema}.facts f
         WHERE f.run_id = r.id AND f.kind = 'stop_requested' ORDER BY f.seq LIMIT 1) AS stop,
       (SELECT coalesce(jsonb_agg(coalesce(f.data -> 'lost', f.data -> 'error') || jsonb_build_object('at', f.at) ORDER BY f.seq), '[]')
          FROM {schema}.facts f WHERE f.run_id = r.id
           AND (f.data ? 'lost' AND f.kind IN ('attempt_closed', 'run_ended')
                OR f.kind = 'run_ended' AND f.data -> 'error' ? 'cause')) AS lost,
       (SELECT jsonb_build_object('worker', c.holder, 'fence', c.fence, 'acquired_at', c.acquired_at, 'expires_at', c.expires_at,
                                  'expires_in_s', round(extract(epoch FROM c.expires_at - clock_timestamp())::numeric, 3))
          FROM {schema}.claims c WHERE c.thread_id = r.thread_id AND c.claim_id = r.claim_id) AS claim,
       EXISTS (SELECT 1 FROM {schema}.workers w WHERE r.agent = ANY (w.agents)
                  AND w.seen_at > clock_timestamp() - interval '10 s') AS has_worker,
       {schema}._spent(r.id) AS spent, {schema}._charged_of(r.id) AS charged, {schema}._decisions(r.id, 200) AS decisions
  FROM {schema}.runs r WHERE r.id = $1;

-- name: list_runs
-- Runs that a principal may see, newest first, older than an id.
SELECT r.*, r.stop_cut IS NOT NULL AS stop_requested FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id
 WHERE t.workspace = $1 AND ($4::text[] IS NULL OR r.status = ANY ($4)) AND ($5::text IS NULL OR r.agent = $5)
   AND ($6::text IS NULL OR r.principal = $6) AND ($7::uuid IS NULL OR r.thread_id = $7)
   AND ($8::uuid IS NULL OR r.id < $8) AND {schema}._access(t.id, t.owner, $2, $3) IS NOT NULL
 ORDER BY r.id DESC LIMIT $9;

-- name: workers
-- The workers that were seen in the last minute, with the runs that they hold, and executors with their calls.
SELECT w.*, CASE WHEN w.queue IS NULL THEN (SELECT count(*) FROM {schema}.claims c WHERE c.holder = w.id)
                 ELSE (SELECT count(*) FROM {schema}.remote_calls c WHERE c.queue = w.queue AND c.status = 'running' AND c.executor = w.id)
            END AS running FROM {schema}.workers w
 WHERE w.seen_at > clock_timestamp() - interval '1 min' ORDER BY w.id;

-- name: drain
-- Ask a worker to hand its runs over and leave.
SELECT * FROM {schema}.drain_v1($1);

-- name: draining
-- Whether an operator asked this worker to leave.
SELECT {schema}.draining_v1($1);

-- name: replay
-- Run an ended run again from a position in its history.
SELECT * FROM {schema}.replay_v2($1, $2, $3, $4, $5, $6, $7, $8);

-- name: begin_of_run
-- Where a run that may be seen began: the chunk that the model was first asked over, or the one that it was replayed from;
-- NULL if it has written none. A message may come between the first input and the first request, in a chunk of its own.
SELECT coalesce(r.replay_chunk, (
           SELECT max(h.chunk) FROM {schema}.history h WHERE h.run_id = r.id AND NOT EXISTS (
                  SELECT 1 FROM {schema}.history x, json_array_elements(x.messages) AS m
                   WHERE x.run_id = r.id AND x.chunk <= h.chunk AND m ->> 'kind' = 'response'))) AS chunk
  FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;
