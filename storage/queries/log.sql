-- What is on record, page by page, if the principal may see the thread: one row with nothing set where there is none of
-- it yet, and no row at all where there is nothing to see. `place` is where the page after this row begins, `more` whether
-- anything follows it; a page ends before what would begin beyond a number of bytes.

-- name: facts_page
-- Facts of a thread.
SELECT p.* FROM {schema}.threads t LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT f.seq AS place, f.*, row_number() OVER o AS n, lead(f.seq) OVER o IS NOT NULL AS more,
               sum(octet_length(f.data::text)) OVER o - octet_length(f.data::text) AS bytes
          FROM (SELECT x.seq, x.run_id, x.fence, x.kind, x.data, x.at, {schema}._admission(r) AS admission
                  FROM {schema}.facts x LEFT JOIN {schema}.runs r ON r.id = x.run_id
                 WHERE x.thread_id = t.id AND x.seq > $5 ORDER BY x.seq LIMIT $6::int + 1) f
        WINDOW o AS (ORDER BY f.seq)) w
     WHERE w.n <= $6::int AND w.bytes < $7::bigint) p ON true
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY p.seq;

-- name: history_page
-- Chunks of a thread's history: of the branch that ends in a chunk, or of the one that the model is shown now.
SELECT p.* FROM {schema}.threads t LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT h.chunk AS place, h.messages, row_number() OVER o AS n, lead(h.chunk) OVER o IS NOT NULL AS more,
               sum(octet_length(h.messages::text)) OVER o - octet_length(h.messages::text) AS bytes
          FROM (SELECT x.chunk, x.messages
                  FROM {schema}._spans(t.id, coalesce($8, t.history_head)) s
                  JOIN {schema}.history x ON x.thread_id = t.id AND x.chunk BETWEEN s.lo AND s.hi
                 WHERE x.chunk > $5 ORDER BY x.chunk LIMIT $6::int + 1) h
        WINDOW o AS (ORDER BY h.chunk)) w
     WHERE w.n <= $6::int AND w.bytes < $7::bigint) p ON true
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY p.place;

-- name: attempts_page
-- Attempts of a run.
SELECT p.* FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT a.attempt AS place, a.*, row_number() OVER o AS n, lead(a.attempt) OVER o IS NOT NULL AS more
          FROM (SELECT x.* FROM {schema}.attempts x
                 WHERE x.run_id = r.id AND x.attempt > $5::bigint ORDER BY x.attempt LIMIT $6::int + 1) a
        WINDOW o AS (ORDER BY a.attempt)) w
     WHERE w.n <= $6::int) p ON true
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY p.place;

-- name: answers_page
-- What models answered in a run; only answers with calls, if those are asked for.
SELECT p.* FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT f.seq AS place, f.*, row_number() OVER o AS n, lead(f.seq) OVER o IS NOT NULL AS more,
               sum(octet_length(f.data::text)) OVER o - octet_length(f.data::text) AS bytes
          FROM (SELECT x.seq, x.run_id, x.fence, x.kind, x.data, x.at, {schema}._admission(r) AS admission FROM {schema}.facts x
                 WHERE x.run_id = r.id AND x.kind = 'model_called' AND x.seq > $5
                   AND (NOT $8::boolean OR jsonb_array_length(x.data -> 'calls') > 0)
                 ORDER BY x.seq LIMIT $6::int + 1) f
        WINDOW o AS (ORDER BY f.seq)) w
     WHERE w.n <= $6::int AND w.bytes < $7::bigint) p ON true
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY p.seq;

-- name: calls_of
-- All facts of a run about the calls of some of its answers, later answers that use an id again among them.
WITH asked AS (
    SELECT r.id AS run, array_agg(c.call ->> 'id') AS ids, min(f.seq) AS first
      FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id JOIN {schema}.facts f ON f.run_id = r.id,
           jsonb_array_elements(f.data -> 'calls') AS c (call)
     WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
       AND f.seq = ANY ($5::bigint[])
     GROUP BY r.id
)
SELECT f.seq, f.run_id, f.fence, f.kind, f.data, f.at, {schema}._admission(r) AS admission
  FROM asked a JOIN {schema}.facts f ON f.run_id = a.run JOIN {schema}.runs r ON r.id = a.run
 WHERE f.seq >= a.first
   AND (f.kind = 'attempt_closed'
        OR f.kind = ANY ($6::text[]) AND (f.data ->> 'call_id' = ANY (a.ids) OR NOT f.data ? 'call_id')
        OR f.kind = 'model_called' AND EXISTS (SELECT 1 FROM jsonb_array_elements(f.data -> 'calls') AS c (call)
                                                WHERE c.call ->> 'id' = ANY (a.ids)))
 ORDER BY f.seq;

-- name: checkpoints_page
-- The positions in a thread's history that a run has reached.
SELECT p.* FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT c.chunk AS place, c.*, row_number() OVER o AS n, lead(c.chunk) OVER o IS NOT NULL AS more
          FROM {schema}._checkpoints(r.id, $5, $6::int + 1) c
        WINDOW o AS (ORDER BY c.chunk)) w
     WHERE w.n <= $6::int) p ON true
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY p.place;

-- name: get_checkpoint
-- One position, if the principal may see its thread.
SELECT c.* FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id, LATERAL {schema}._checkpoints(r.id, $5::bigint - 1, 1) c
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL AND c.chunk = $5::bigint;
