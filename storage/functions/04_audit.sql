-- A row for each broken invariant; empty on a healthy system, whatever has happened to it. Looks at the threads that
-- changed within p_recent, or at all.
CREATE OR REPLACE FUNCTION audit_v2(p_recent interval) RETURNS TABLE (invariant text, thread_id uuid, detail text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE v_ids uuid[] := ARRAY(SELECT t.id FROM threads t
                               WHERE p_recent IS NULL OR t.updated_at > clock_timestamp() - p_recent);
BEGIN
    RETURN QUERY
    SELECT 'one active run per thread', r.thread_id, count(*)::text FROM runs r
     WHERE r.thread_id = ANY (v_ids) AND r.status IN ('pending', 'running', 'paused') GROUP BY r.thread_id HAVING count(*) > 1
    UNION ALL
    SELECT 'one end per run, equal to its status', r.thread_id, r.id::text FROM runs r
      LEFT JOIN facts f ON f.run_id = r.id AND f.kind = 'run_ended'
     WHERE r.thread_id = ANY (v_ids) AND ((r.ended_at IS NOT NULL) <> (f.seq IS NOT NULL) OR f.data ->> 'status' <> r.status
        OR f.data ->> 'reason' IS DISTINCT FROM r.reason)
    UNION ALL
    SELECT 'no fact of a run after its end', f.thread_id, f.run_id::text FROM facts f
      JOIN facts e ON e.run_id = f.run_id AND e.kind = 'run_ended' AND f.seq > e.seq
     WHERE f.thread_id = ANY (v_ids)
    UNION ALL
    SELECT 'facts are gap-free', t.id, t.log_seq::text FROM threads t
     WHERE t.id = ANY (v_ids) AND (t.log_seq <> (SELECT count(*) FROM facts f WHERE f.thread_id = t.id)
        OR t.log_seq <> (SELECT coalesce(max(f.seq), 0) FROM facts f WHERE f.thread_id = t.id))
    UNION ALL
    SELECT 'fences never fall along the log', x.thread_id, x.seq::text FROM (
        SELECT f.thread_id, f.seq, f.fence, lag(f.fence) OVER (PARTITION BY f.thread_id ORDER BY f.seq) AS prev FROM facts f
         WHERE f.thread_id = ANY (v_ids)
    ) x WHERE x.fence < x.prev
    UNION ALL
    SELECT 'waiting is counted', t.id, t.waiting::text FROM threads t
     WHERE t.id = ANY (v_ids) AND t.waiting <> (SELECT count(*) FROM inbox i WHERE i.thread_id = t.id AND i.state = 'waiting')
    UNION ALL
    SELECT 'the inbox is gap-free', t.id, t.inbox_seq::text FROM threads t
     WHERE t.id = ANY (v_ids) AND t.inbox_seq <> (SELECT count(*) FROM inbox i WHERE i.thread_id = t.id)
    UNION ALL
    SELECT 'each consumed message has one delivery on the log', i.thread_id, i.id::text FROM inbox i
      LEFT JOIN (SELECT f.thread_id, f.data ->> 'message' AS message, count(*) AS times FROM facts f
                  WHERE f.kind = 'message_delivered' AND f.thread_id = ANY (v_ids) GROUP BY 1, 2) d
        ON d.thread_id = i.thread_id AND d.message = i.id::text
     WHERE i.thread_id = ANY (v_ids) AND coalesce(d.times, 0) <> (i.state = 'delivered')::int
    UNION ALL
    SELECT 'state follows the current run', t.id, t.state FROM threads t LEFT JOIN runs r ON r.id = t.current_run
     WHERE t.id = ANY (v_ids) AND CASE t.state
           WHEN 'idle' THEN EXISTS (SELECT 1 FROM runs a WHERE a.thread_id = t.id AND a.ended_at IS NULL)
           WHEN 'paused' THEN r.status IS DISTINCT FROM 'paused'
           ELSE coalesce(r.status, '') NOT IN ('pending', 'running') END
    UNION ALL
    SELECT 'a claim stands exactly while a run is running', t.id, coalesce(r.status, '-') FROM threads t
      LEFT JOIN claims c ON c.thread_id = t.id LEFT JOIN runs r ON r.id = t.current_run
     WHERE t.id = ANY (v_ids) AND ((c.claim_id IS NOT NULL) <> (coalesce(r.status, '') = 'running')
        OR c.claim_id IS DISTINCT FROM t.claim_id
        OR (c.claim_id IS NOT NULL AND (c.claim_id <> r.claim_id OR c.fence <> t.fence)))
    UNION ALL
    SELECT 'an attempt is open exactly while its run is running', r.thread_id, r.id::text FROM runs r
     WHERE r.thread_id = ANY (v_ids) AND (SELECT count(*) FROM attempts a WHERE a.run_id = r.id AND a.closed_at IS NULL) <> (r.status = 'running')::int
    UNION ALL
    SELECT 'requests are open only while their run is paused', q.thread_id, q.id::text FROM requests q
      JOIN runs r ON r.id = q.run_id WHERE q.thread_id = ANY (v_ids) AND q.status = 'open' AND r.status <> 'paused'
    UNION ALL
    SELECT 'a paused run waits for somebody', r.thread_id, r.id::text FROM runs r
     WHERE r.thread_id = ANY (v_ids) AND r.status = 'paused' AND NOT EXISTS (SELECT 1 FROM requests q WHERE q.run_id = r.id AND q.status = 'open')
    UNION ALL
    SELECT 'each request is answered once', q.thread_id, q.id::text FROM requests q
     WHERE q.thread_id = ANY (v_ids) AND (SELECT count(*) FROM facts f WHERE f.thread_id = q.thread_id AND f.kind = 'request_answered'
               AND f.data ->> 'request' = q.id::text) <> (q.status <> 'open')::int
    UNION ALL
    SELECT 'each returned message has one return on the log', i.thread_id, i.id::text FROM inbox i
      LEFT JOIN (SELECT f.thread_id, f.data ->> 'message' AS message, count(*) AS times FROM facts f
                  WHERE f.kind = 'message_returned' AND f.thread_id = ANY (v_ids) GROUP BY 1, 2) d
        ON d.thread_id = i.thread_id AND d.message = i.id::text
     WHERE i.thread_id = ANY (v_ids) AND coalesce(d.times, 0) <> (i.state = 'returned')::int
    UNION ALL
    SELECT 'every exit after a stop is a stop', r.thread_id, r.id::text FROM runs r
     WHERE r.thread_id = ANY (v_ids) AND r.stop_cut IS NOT NULL AND r.status IN ('completed', 'failed', 'paused')
    UNION ALL
    SELECT 'fences never fall along the history', x.thread_id, x.chunk::text FROM (
        SELECT h.thread_id, h.chunk, h.fence, lag(h.fence) OVER (PARTITION BY h.thread_id ORDER BY h.chunk) AS prev FROM history h
         WHERE h.thread_id = ANY (v_ids)
    ) x WHERE x.fence < x.prev
    UNION ALL
    SELECT 'history is gap-free', t.id, t.history_chunks::text FROM threads t
     WHERE t.id = ANY (v_ids) AND t.history_chunks <> (SELECT count(*) FROM history h WHERE h.thread_id = t.id)
    UNION ALL
    SELECT 'the history''s head is one of its chunks', t.id, t.history_head::text FROM threads t
     WHERE t.id = ANY (v_ids) AND (t.history_head NOT BETWEEN 0 AND t.history_chunks OR (t.history_head = 0) <> (t.history_chunks = 0))
    UNION ALL
    SELECT 'a run begins where its origin was', r.thread_id, r.id::text FROM runs r JOIN runs o ON o.id = r.replay_of
     WHERE r.thread_id = ANY (v_ids) AND (o.thread_id <> r.thread_id OR o.ended_at IS NULL OR o.run_no >= r.run_no)
    UNION ALL
    SELECT 'no run starts for ever without an acknowledgement', r.thread_id, r.id::text FROM runs r
     WHERE r.thread_id = ANY (v_ids) AND r.unacked > 5
    UNION ALL
    SELECT 'only a worker''s run is retried', r.thread_id, r.id::text FROM runs r
     WHERE r.thread_id = ANY (v_ids) AND r.kind = 'direct' AND (r.retried > 0 OR r.attempt > 1 + (
           SELECT count(*) FROM attempts a WHERE a.run_id = r.id AND a.outcome IN ('interrupted', 'handed_over')))
    UNION ALL
    SELECT 'what a run has spent is the sum of its calls', r.thread_id, r.id::text FROM runs r
      JOIN threads t ON t.id = r.thread_id
      JOIN spend s ON s.workspace = t.workspace AND s.scope = 'run' AND s.id = r.id::text, LATERAL (
           SELECT count(*) AS calls,
                  coalesce(sum(CASE m.state WHEN 'settled' THEN m.input_tokens + m.output_tokens WHEN 'lost' THEN m.tokens ELSE 0 END), 0) AS tokens,
                  coalesce(sum(CASE m.state WHEN 'settled' THEN coalesce(m.cost, 0) WHEN 'lost' THEN m.money ELSE 0 END), 0) AS money,
                  coalesce(sum(m.tokens) FILTER (WHERE m.state = 'open'), 0) AS held_tokens,
                  coalesce(sum(m.money) FILTER (WHERE m.state = 'open'), 0) AS held_money
             FROM model_calls m WHERE m.run_id = r.id) m
     WHERE r.thread_id = ANY (v_ids) AND (s.model_calls, s.tokens, s.money, s.held_tokens, s.held_money)
           IS DISTINCT FROM (m.calls, m.tokens, m.money, m.held_tokens, m.held_money)
    UNION ALL
    SELECT 'only calls of a run in progress hold anything', r.thread_id, m.id::text FROM runs r
      JOIN threads t ON t.id = r.thread_id JOIN model_calls m ON m.run_id = r.id AND m.state = 'open'
     WHERE r.thread_id = ANY (v_ids) AND m.claim_id IS DISTINCT FROM t.claim_id
    UNION ALL
    -- All of the log is looked through for this one, so only where everything is.
    SELECT 'each use of a grant is on the log', g.thread_id, g.id::text FROM grants g
      LEFT JOIN (SELECT f.data ->> 'grant' AS id, count(*) AS uses FROM facts f WHERE f.kind = 'grant_used' GROUP BY 1) u
        ON u.id = g.id::text
     WHERE p_recent IS NULL AND g.used <> coalesce(u.uses, 0);
END $$;

-- Whether it is this caller's turn to do what one worker does for all, at most once in p_every.
CREATE OR REPLACE FUNCTION turn_v1(p_name text, p_every interval) RETURNS boolean LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    INSERT INTO chores AS c (name, at) VALUES (p_name, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE c.at <= clock_timestamp() - p_every
    RETURNING true
$$;
