-- Facts in the order of (thread, seq) behind a place, a page at a time, for whoever may see them. A page has a bounded
-- number of rows and ends before what would begin beyond a number of bytes; `more` tells whether anything follows a row.
-- One row without a seq stands for a thread that has no facts (behind the place); no row at all: there is nothing to see.

-- name: export_thread
-- Facts of a thread.
SELECT t.id AS thread_id, p.* FROM {schema}.threads t LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT f.*, row_number() OVER o AS n, lead(f.seq) OVER o IS NOT NULL AS more, sum(f.size) OVER o - f.size AS bytes
          FROM (SELECT x.seq, x.run_id, x.fence, x.kind, x.data, x.at, {schema}._admission(r) AS admission,
                       octet_length(x.data::text) AS size
                  FROM {schema}.facts x LEFT JOIN {schema}.runs r ON r.id = x.run_id
                 WHERE x.thread_id = t.id AND t.id >= $5 AND x.seq > CASE t.id WHEN $5 THEN $6::bigint ELSE 0 END
                 ORDER BY x.seq LIMIT $7::int + 1) f
        WINDOW o AS (ORDER BY f.seq)) w
     WHERE w.n <= $7::int AND w.bytes < $8::bigint) p ON true
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY p.seq;

-- name: export_run
-- Facts of a run; of one on a certain thread, if that is asked for.
SELECT t.id AS thread_id, p.* FROM {schema}.runs r JOIN {schema}.threads t ON t.id = r.thread_id LEFT JOIN LATERAL (
    SELECT w.* FROM (
        SELECT f.*, row_number() OVER o AS n, lead(f.seq) OVER o IS NOT NULL AS more, sum(f.size) OVER o - f.size AS bytes
          FROM (SELECT x.seq, x.run_id, x.fence, x.kind, x.data, x.at, {schema}._admission(r) AS admission,
                       octet_length(x.data::text) AS size
                  FROM {schema}.facts x
                 WHERE x.run_id = r.id AND t.id >= $5 AND x.seq > CASE t.id WHEN $5 THEN $6::bigint ELSE 0 END
                 ORDER BY x.seq LIMIT $7::int + 1) f
        WINDOW o AS (ORDER BY f.seq)) w
     WHERE w.n <= $7::int AND w.bytes < $8::bigint) p ON true
 WHERE r.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL AND t.id = coalesce($9::uuid, t.id)
 ORDER BY p.seq;

-- name: export_workspace
-- Facts of all threads of a workspace, for operators. A log has no gaps, so that a thread's head tells how many facts are
-- left of it: only so many threads are looked at, and so many facts read, as the page has rows.
SELECT w.* FROM (
    SELECT f.*, row_number() OVER o AS n, lead(f.thread_id) OVER o IS NOT NULL AS more, sum(f.size) OVER o - f.size AS bytes
      FROM (SELECT t.id AS thread_id, x.seq, x.run_id, x.fence, x.kind, x.data, x.at, x.admission,
                   coalesce(octet_length(x.data::text), 0) AS size
              FROM (SELECT s.id, s.behind, sum(s.rows) OVER (ORDER BY s.id) - s.rows AS before
                      FROM (SELECT t.id, b.behind, greatest(1, t.log_seq - b.behind) AS rows
                              FROM {schema}.threads t, LATERAL (SELECT CASE t.id WHEN $3 THEN $4::bigint ELSE 0 END) AS b (behind)
                             WHERE t.workspace = $1 AND 'operator' = ANY ($2::text[]) AND t.id >= $3::uuid
                               AND (t.id > $3 OR t.log_seq > $4)
                             ORDER BY t.id LIMIT $5::int + 1) s) t
              LEFT JOIN LATERAL (
                   SELECT y.*, {schema}._admission(r) AS admission FROM {schema}.facts y LEFT JOIN {schema}.runs r ON r.id = y.run_id
                    WHERE y.thread_id = t.id AND y.seq > t.behind ORDER BY y.seq LIMIT ($5::int + 1 - t.before)::bigint) x ON true
             WHERE t.before <= $5::int) f
    WINDOW o AS (ORDER BY f.thread_id, f.seq)) w
 WHERE w.n <= $5::int AND w.bytes < $6::bigint
 ORDER BY w.thread_id, w.seq;
