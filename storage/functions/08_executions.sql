-- Executions, and runs that go on from an earlier position in a thread's history.

-- Start an execution: a thread of its own for the agent, with the mission as its first message. All ids come from the
-- caller; those that a key stands for are the same each time, so that the same call finds what the first one made.
-- outcome: ok | key_conflict (the key stands for another mission or agent)
CREATE OR REPLACE FUNCTION execute_v2(p_workspace text, p_principal text, p_roles text[], p_execution uuid, p_agent text,
                                      p_mission text, p_thread uuid, p_key text, p_hash bytea, p_message uuid, p_new_run uuid,
                                      p_admission jsonb,
                                      OUT outcome text, OUT message uuid, OUT run uuid, OUT seq bigint, OUT duplicate boolean,
                                      OUT has_worker boolean, OUT agent text, OUT dispatch uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE s record;
BEGIN
    INSERT INTO workspaces (id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
    INSERT INTO executions (id, workspace, principal, agent, mission)
    VALUES (p_execution, p_workspace, p_principal, p_agent, p_mission) ON CONFLICT DO NOTHING;
    INSERT INTO threads (id, workspace, owner, agent, execution)
    VALUES (p_thread, p_workspace, p_principal, p_agent, p_execution) ON CONFLICT DO NOTHING;
    s := send_v2(p_workspace, p_principal, p_roles, p_thread, p_agent, p_key, p_hash, p_mission, p_message, p_new_run,
                 'steer', 1, p_admission);
    outcome := s.outcome; message := s.message; run := s.run; seq := s.seq; duplicate := s.duplicate;
    has_worker := s.has_worker; agent := p_agent; dispatch := s.dispatch;
    IF EXISTS (SELECT 1 FROM executions e WHERE e.id = p_execution AND e.agent <> p_agent) THEN
        outcome := 'key_conflict';
    END IF;
END $$;

-- Where a branch of the history lies that ends in a chunk: spans of chunks that follow one another.
CREATE OR REPLACE FUNCTION _spans(p_thread uuid, p_head bigint) RETURNS TABLE (lo bigint, hi bigint)
LANGUAGE sql STABLE ROWS 1 SET search_path FROM CURRENT AS $$
    WITH RECURSIVE span AS (
        SELECT 0::bigint AS lo, 0::bigint AS hi, p_head AS next
        UNION ALL
        SELECT coalesce(j.chunk, 1), s.next, coalesce(j.parent, 0) FROM span s LEFT JOIN LATERAL (
            SELECT h.chunk, h.parent FROM history h
             WHERE h.thread_id = p_thread AND h.chunk <= s.next AND h.parent <> h.chunk - 1
             ORDER BY h.chunk DESC LIMIT 1) j ON true
         WHERE s.next > 0
    )
    SELECT s.lo, s.hi FROM span s WHERE s.hi > 0
$$;

-- What of the log belongs to branches that the thread's history has left: behind `after`, up to `upto`. A branch is left
-- where nothing is open, so what is known of calls there never concerns those before it.
CREATE OR REPLACE FUNCTION _left(p_thread uuid) RETURNS TABLE (after bigint, upto bigint)
LANGUAGE sql STABLE ROWS 1 SET search_path FROM CURRENT AS $$
    SELECT c.seq, r.first_seq FROM threads t, _spans(p_thread, t.history_head) s
      JOIN history j ON j.thread_id = p_thread AND j.chunk = s.lo AND j.parent <> j.chunk - 1
      JOIN history c ON c.thread_id = p_thread AND c.chunk = j.parent
      JOIN runs r ON r.id = j.run_id WHERE t.id = p_thread
    UNION ALL
    -- A replay that has not written anything yet.
    SELECT c.seq, r.first_seq FROM threads t JOIN runs r ON r.id = t.current_run
      JOIN history c ON c.thread_id = t.id AND c.chunk = t.history_head
     WHERE t.id = p_thread AND t.history_head < t.history_chunks
$$;

-- Run an ended run again, for whom it acted, from a chunk of its own or from the one that it began with itself: a new run
-- on the same thread that names its origin and has its budget. What the branch had behind that chunk is not shown any more; it
-- stays on record. Whoever else may write to the thread sends with an identity of their own instead.
-- outcome: ok | not_found | forbidden | not_yours | key_conflict | not_ended | no_checkpoint | thread_archived | thread_busy
CREATE OR REPLACE FUNCTION replay_v2(p_workspace text, p_principal text, p_roles text[], p_run uuid, p_chunk bigint, p_key text,
                                     p_new_run uuid, p_admission jsonb,
                                     OUT outcome text, OUT thread uuid, OUT run uuid, OUT begun_by uuid, OUT seq bigint,
                                     OUT duplicate boolean, OUT has_worker boolean, OUT agent text, OUT dispatch uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; d runs; v_access text;
BEGIN
    duplicate := false;
    SELECT x.thread_id INTO thread FROM runs x WHERE x.id = p_run;
    SELECT * INTO t FROM threads WHERE id = thread FOR NO KEY UPDATE;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL THEN outcome := 'not_found'; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    SELECT * INTO r FROM runs WHERE id = p_run;
    IF r.principal <> p_principal AND NOT 'operator' = ANY (p_roles) THEN outcome := 'not_yours'; RETURN; END IF;
    agent := t.agent; seq := t.log_seq;
    has_worker := EXISTS (SELECT 1 FROM workers w WHERE t.agent = ANY (w.agents)
                             AND w.seen_at > clock_timestamp() - interval '10 s');
    SELECT * INTO d FROM runs x WHERE x.replay_of = p_run AND x.replayed_by = p_principal AND x.replay_key = p_key;
    IF FOUND THEN
        outcome := CASE WHEN d.replay_chunk = p_chunk THEN 'ok' ELSE 'key_conflict' END;
        run := d.id; begun_by := d.replay_begin; seq := d.first_seq + 1; duplicate := true; RETURN;
    END IF;
    IF r.ended_at IS NULL THEN outcome := 'not_ended'; RETURN; END IF;
    SELECT h.run_id INTO begun_by FROM history h WHERE h.thread_id = t.id AND h.chunk = p_chunk
       AND (h.run_id = p_run OR h.chunk = r.replay_chunk);
    IF begun_by IS NULL THEN outcome := 'no_checkpoint'; RETURN; END IF;
    IF t.status = 'archived' THEN outcome := 'thread_archived'; RETURN; END IF;
    IF t.state <> 'idle' THEN outcome := 'thread_busy'; run := t.current_run; RETURN; END IF;
    PERFORM _new_run(t.id, p_new_run, r.principal, r.roles, p_admission - 'budgets' || jsonb_build_object('budget', r.budget));
    UPDATE threads SET history_head = p_chunk WHERE id = t.id;
    UPDATE runs SET replay_of = p_run, replay_chunk = p_chunk, replay_begin = begun_by, replayed_by = p_principal,
           replay_key = p_key WHERE id = p_new_run;
    seq := _fact(t.id, p_new_run, 'run_replayed', jsonb_build_object(
        'origin', p_run, 'checkpoint', begun_by || '.' || p_chunk, 'by', p_principal));
    outcome := 'ok'; run := p_new_run; dispatch := p_new_run;
END $$;

-- The positions in a thread's history that a run has reached, one per chunk that it wrote, behind a chunk: what the model
-- had been shown and had said by then. A pause leaves its requests at the last one of its attempt.
CREATE OR REPLACE FUNCTION _checkpoints(p_run uuid, p_after bigint, p_limit int)
RETURNS TABLE (thread_id uuid, run_id uuid, chunk bigint, attempt int, fence bigint, seq bigint, at timestamptz,
               parent bigint, parent_run uuid, messages int, ends_in text, requests uuid[])
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT h.thread_id, h.run_id, h.chunk, a.attempt, h.fence, h.seq, h.at, h.parent, p.run_id,
           json_array_length(h.messages), h.messages -> -1 ->> 'kind',
           ARRAY(SELECT q.id FROM requests q WHERE q.run_id = h.run_id AND q.attempt = a.attempt AND NOT EXISTS (
                     SELECT 1 FROM history n WHERE n.run_id = h.run_id AND n.fence = h.fence AND n.chunk > h.chunk)
                  ORDER BY q.created_at, q.id)
      FROM history h JOIN attempts a ON a.run_id = h.run_id AND a.fence = h.fence
      LEFT JOIN history p ON p.thread_id = h.thread_id AND p.chunk = h.parent
     WHERE h.run_id = p_run AND h.chunk > p_after ORDER BY h.chunk LIMIT p_limit
$$;

-- What an execution's status follows from: the statuses of the newest runs of its threads, why the last one of those that
-- did not complete ended so, when the last one of all ended, and what that of the first thread returned.
CREATE OR REPLACE FUNCTION _standing(p_execution uuid, OUT statuses text[], OUT failed_reason text, OUT stopped_reason text,
                                     OUT ended_at timestamptz, OUT result jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH newest AS (
        SELECT r.*, row_number() OVER (ORDER BY t.created_at, t.id) AS place
          FROM threads t JOIN runs r ON r.thread_id = t.id AND r.run_no = t.run_no WHERE t.execution = p_execution
    )
    SELECT coalesce(array_agg(DISTINCT n.status), '{}'),
           (array_agg(n.reason ORDER BY n.ended_at DESC) FILTER (WHERE n.status = 'failed'))[1],
           (array_agg(n.reason ORDER BY n.ended_at DESC) FILTER (WHERE n.status = 'stopped'))[1],
           max(n.ended_at),
           (SELECT f.data -> 'output' FROM newest m JOIN facts f ON f.run_id = m.id AND f.kind = 'run_ended'
             WHERE m.place = 1 AND m.status = 'completed')
      FROM newest n
$$;
