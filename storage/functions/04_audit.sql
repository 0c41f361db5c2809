-- A row for each broken invariant; empty on a healthy system, whatever has happened to it.
CREATE OR REPLACE FUNCTION audit_v1() RETURNS TABLE (invariant text, thread_id uuid, detail text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT 'one active run per thread', r.thread_id, count(*)::text FROM runs r
     WHERE r.status IN ('pending', 'running', 'paused') GROUP BY r.thread_id HAVING count(*) > 1
    UNION ALL
    SELECT 'one end per run, equal to its status', r.thread_id, r.id::text FROM runs r
      LEFT JOIN facts f ON f.run_id = r.id AND f.kind = 'run_ended'
     WHERE (r.ended_at IS NOT NULL) <> (f.seq IS NOT NULL) OR f.data ->> 'status' <> r.status
        OR f.data ->> 'reason' IS DISTINCT FROM r.reason
    UNION ALL
    SELECT 'no fact of a run after its end', f.thread_id, f.run_id::text FROM facts f
      JOIN facts e ON e.run_id = f.run_id AND e.kind = 'run_ended' AND f.seq > e.seq
    UNION ALL
    SELECT 'facts are gap-free', t.id, t.log_seq::text FROM threads t
     WHERE t.log_seq <> (SELECT count(*) FROM facts f WHERE f.thread_id = t.id)
        OR t.log_seq <> (SELECT coalesce(max(f.seq), 0) FROM facts f WHERE f.thread_id = t.id)
    UNION ALL
    SELECT 'fences never fall along the log', x.thread_id, x.seq::text FROM (
        SELECT f.thread_id, f.seq, f.fence, lag(f.fence) OVER (PARTITION BY f.thread_id ORDER BY f.seq) AS prev FROM facts f
    ) x WHERE x.fence < x.prev
    UNION ALL
    SELECT 'waiting is counted', t.id, t.waiting::text FROM threads t
     WHERE t.waiting <> (SELECT count(*) FROM inbox i WHERE i.thread_id = t.id AND i.state = 'waiting')
    UNION ALL
    SELECT 'the inbox is gap-free', t.id, t.inbox_seq::text FROM threads t
     WHERE t.inbox_seq <> (SELECT count(*) FROM inbox i WHERE i.thread_id = t.id)
    UNION ALL
    SELECT 'each consumed message has one delivery on the log', i.thread_id, i.id::text FROM inbox i
      LEFT JOIN (SELECT f.thread_id, f.data ->> 'message' AS message, count(*) AS times FROM facts f
                  WHERE f.kind = 'message_delivered' GROUP BY 1, 2) d
        ON d.thread_id = i.thread_id AND d.message = i.id::text
     WHERE coalesce(d.times, 0) <> (i.state = 'delivered')::int
    UNION ALL
    SELECT 'state follows the current run', t.id, t.state FROM threads t LEFT JOIN runs r ON r.id = t.current_run
     WHERE CASE t.state
           WHEN 'idle' THEN EXISTS (SELECT 1 FROM runs a WHERE a.thread_id = t.id AND a.ended_at IS NULL)
           WHEN 'paused' THEN r.status IS DISTINCT FROM 'paused'
           ELSE coalesce(r.status, '') NOT IN ('pending', 'running') END
    UNION ALL
    SELECT 'a claim stands exactly while a run is running', t.id, coalesce(r.status, '-') FROM threads t
      LEFT JOIN claims c ON c.thread_id = t.id LEFT JOIN runs r ON r.id = t.current_run
     WHERE (c.claim_id IS NOT NULL) <> (coalesce(r.status, '') = 'running') OR c.claim_id IS DISTINCT FROM t.claim_id
        OR (c.claim_id IS NOT NULL AND (c.claim_id <> r.claim_id OR c.fence <> t.fence))
    UNION ALL
    SELECT 'an attempt is open exactly while its run is running', r.thread_id, r.id::text FROM runs r
     WHERE (SELECT count(*) FROM attempts a WHERE a.run_id = r.id AND a.closed_at IS NULL) <> (r.status = 'running')::int
    UNION ALL
    SELECT 'requests are open only while their run is paused', q.thread_id, q.id::text FROM requests q
      JOIN runs r ON r.id = q.run_id WHERE q.status = 'open' AND r.status <> 'paused'
$$;
