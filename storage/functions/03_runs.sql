-- What workers do: take a thread, record, end, give up; and what any of them does for the others: sweep.

-- Take the thread's claim and start its pending run, in one transaction that also records what a lapsed holder left.
-- p_start_key is the worker's own, fresh for each try: the same call after a lost answer returns the same start while
-- it lives. The claim's id is made here, one per start, so that no key can ever stand for two starts.
-- p_agents and p_retries go together: how often a run of that agent may start again after an abandonment.
-- outcome: started | held | nothing | not_mine
CREATE OR REPLACE FUNCTION claim_v4(p_thread uuid, p_agents text[], p_retries int[], p_worker text, p_start_key uuid,
                                    p_ttl interval, p_hinted boolean, p_new_run uuid,
                                    OUT outcome text, OUT workspace text, OUT run uuid, OUT agent text, OUT principal text,
                                    OUT roles text[], OUT attempt int, OUT claim_id uuid, OUT fence bigint,
                                    OUT history_head bigint, OUT inbox jsonb, OUT lapsed text, OUT seq bigint,
                                    OUT fresh boolean, OUT interface text, OUT environment text, OUT budget text,
                                    OUT memory jsonb, OUT failed_tries int)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF NOT FOUND THEN outcome := 'nothing'; RETURN; END IF;
    SELECT * INTO r FROM runs WHERE id = t.current_run;
    IF r.status = 'running' AND r.start_key = p_start_key THEN
        outcome := 'started';
    ELSE
        lapsed := _take_over(p_thread, p_new_run);
        IF lapsed = 'held' THEN outcome := 'held'; lapsed := NULL; RETURN; END IF;
        -- A start need not reach the disk before the worker goes on: its first record, which does, comes after it in the
        -- same log. If a crash of the database loses both, the run is still pending and the worker is fenced. What a lapsed
        -- holder left is recorded once and for all, so it keeps the server's own setting.
        IF lapsed IS NULL THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
        SELECT * INTO t FROM threads WHERE id = p_thread;
        SELECT * INTO r FROM runs WHERE id = t.current_run;
        seq := t.log_seq;
        IF r.status IS DISTINCT FROM 'pending' OR r.kind <> 'agent' THEN outcome := 'nothing'; RETURN; END IF;
        IF r.agent <> ALL (p_agents) THEN outcome := 'not_mine'; agent := r.agent; RETURN; END IF;
        outcome := 'started';
        PERFORM _start(p_thread, p_worker, p_start_key, p_ttl, p_hinted);
        UPDATE runs x SET unacked = x.unacked + 1, retry_max = greatest(x.retried, p_retries[array_position(p_agents, r.agent)])
         WHERE id = r.id RETURNING * INTO r;
    END IF;
    SELECT * INTO t FROM threads WHERE id = p_thread;
    workspace := t.workspace; run := r.id; agent := r.agent; principal := r.principal; roles := r.roles;
    attempt := r.attempt; claim_id := t.claim_id; fence := t.fence; history_head := t.history_head; seq := t.log_seq;
    interface := r.interface; environment := r.environment; budget := r.budget; memory := t.memory; failed_tries := r.failed_tries;
    inbox := _inbox(p_thread);
    -- An earlier start that was never acknowledged has left no run_started.
    fresh := r.attempt = 1 OR NOT EXISTS (SELECT 1 FROM facts f WHERE f.run_id = r.id AND f.kind = 'run_started');
END $$;

-- Record what a lapsed holder left, if the thread's claim has lapsed and may be taken. result: held | what _lapse says |
-- NULL (nobody held it)
CREATE OR REPLACE FUNCTION _take_over(p_thread uuid, p_new_run uuid) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE c claims;
BEGIN
    -- Waits for a renewal in progress, then sees it.
    SELECT * INTO c FROM claims WHERE thread_id = p_thread FOR UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF c.expires_at > clock_timestamp() OR (c.expires_at > '-infinity' AND _quiet(c.ttl)) THEN RETURN 'held'; END IF;
    RETURN _lapse(p_thread, _cause(p_thread), p_new_run);
END $$;

-- Start the thread's pending run under a new claim.
CREATE OR REPLACE FUNCTION _start(p_thread uuid, p_holder text, p_start_key uuid, p_ttl interval, p_hinted boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE v_claim uuid := gen_random_uuid(); v_fence bigint; r runs;
BEGIN
    UPDATE threads SET fence = _next_fence(fence), claim_id = v_claim, rec_no = 0 WHERE id = p_thread RETURNING fence INTO v_fence;
    INSERT INTO claims (thread_id, claim_id, fence, holder, ttl, hinted, expires_at)
    VALUES (p_thread, v_claim, v_fence, p_holder, p_ttl, p_hinted, clock_timestamp() + p_ttl);
    UPDATE runs SET status = 'running', attempt = attempt + 1, claim_id = v_claim, start_key = p_start_key,
           started_at = coalesce(started_at, clock_timestamp())
     WHERE id = (SELECT t.current_run FROM threads t WHERE t.id = p_thread) RETURNING * INTO r;
    INSERT INTO attempts (run_id, attempt, fence, claim_id, worker) VALUES (r.id, r.attempt, v_fence, v_claim, p_holder);
END $$;

-- Hold a thread for code of one's own: a run of kind 'direct' that no worker takes. Messages wait for the run after it.
-- outcome: held | not_found | forbidden | thread_archived | thread_busy
CREATE OR REPLACE FUNCTION hold_v3(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_holder text,
                                   p_start_key uuid, p_ttl interval, p_run uuid, p_new_run uuid,
                                   p_admission jsonb,
                                   OUT outcome text, OUT run uuid, OUT agent text, OUT claim_id uuid, OUT fence bigint,
                                   OUT history_head bigint, OUT seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; v_access text;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL THEN outcome := 'not_found'; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    IF t.status = 'archived' THEN outcome := 'thread_archived'; RETURN; END IF;
    SELECT * INTO r FROM runs WHERE id = t.current_run;
    IF r.status IS DISTINCT FROM 'running' OR r.start_key IS DISTINCT FROM p_start_key THEN
        PERFORM _take_over(p_thread, p_new_run);
        SELECT * INTO t FROM threads WHERE id = p_thread;
        IF t.state <> 'idle' THEN outcome := 'thread_busy'; RETURN; END IF;
        PERFORM _new_run(p_thread, p_run, p_principal, p_roles, p_admission);
        UPDATE runs x SET kind = 'direct' WHERE id = p_run;
        -- Not hinted: nothing closes a gate for code of somebody's own, so only the ttl counts.
        PERFORM _start(p_thread, p_holder, p_start_key, p_ttl, false);
        -- Nobody can tell what the code has done by the time its claim lapses.
        UPDATE threads x SET rec_no = 1 WHERE id = p_thread;
        PERFORM _fact(p_thread, p_run, 'run_started',
                      jsonb_build_object('agent', t.agent, 'by', p_principal, 'attempt', 1, 'kind', 'direct'));
    END IF;
    SELECT * INTO t FROM threads WHERE id = p_thread;
    outcome := 'held'; run := t.current_run; agent := t.agent; claim_id := t.claim_id; fence := t.fence;
    history_head := t.history_head; seq := t.log_seq;
END $$;

-- The waiting messages that the current run is to see, oldest first.
CREATE OR REPLACE FUNCTION _inbox(p_thread uuid) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', i.id, 'seq', i.seq, 'sender', i.sender, 'content', i.content)
                              ORDER BY i.seq), '[]')
      FROM inbox i WHERE i.thread_id = p_thread AND i.state = 'waiting' AND i.mode = 'now'
$$;

-- Record facts and history under the claim, and consume messages together with the history that shows them. A run that
-- was asked to stop consumes nothing more: p_delivered and p_shown are left out then, and `stop` says so.
-- p_rec_no is 1, 2, 3 ... per start: a repeat is harmless. p_spend: what is about to be spent (see _spend), or NULL; what
-- may not be spent leaves nothing written, and `limits` says why. outcome: ok | fenced | exhausted | wait |
-- no_grant | stop
CREATE OR REPLACE FUNCTION record_v2(p_thread uuid, p_claim uuid, p_rec_no bigint, p_facts jsonb, p_history json,
                                     p_delivered bigint[], p_shown json, p_spend jsonb,
                                     OUT outcome text, OUT seq bigint, OUT waiting int, OUT stop boolean,
                                     OUT limits jsonb)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; s record;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF t.claim_id IS DISTINCT FROM p_claim THEN outcome := 'fenced'; RETURN; END IF;
    IF p_rec_no > t.rec_no THEN
        -- A failover has lost records of this claim: what follows them would be a story with a hole.
        IF p_rec_no <> t.rec_no + 1 THEN outcome := 'fenced'; RETURN; END IF;
        IF p_spend IS NOT NULL THEN
            -- Whoever was asked to stop spends nothing any more; a start is no spending.
            stop := p_spend ->> 'kind' <> 'start' AND EXISTS (SELECT 1 FROM runs r WHERE r.id = t.current_run AND r.stop_cut IS NOT NULL);
            IF stop THEN outcome := 'stop'; seq := t.log_seq; waiting := 0; RETURN; END IF;
            s := _spend(p_thread, t.current_run, p_spend);
            limits := s.limits;
            IF s.outcome <> 'ok' THEN outcome := s.outcome; seq := t.log_seq; waiting := 0; stop := false; RETURN; END IF;
        END IF;
        IF p_rec_no = 1 THEN UPDATE runs SET unacked = 0 WHERE id = t.current_run; END IF;
        UPDATE threads SET rec_no = p_rec_no WHERE id = p_thread;
        PERFORM _facts(p_thread, t.current_run, p_facts);
        PERFORM _history(p_thread, t.current_run, p_history);
        IF NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = t.current_run AND r.stop_cut IS NOT NULL) THEN
            PERFORM _history(p_thread, t.current_run, p_shown);
            PERFORM _deliver(p_thread, t.current_run, p_delivered);
        END IF;
    ELSIF p_spend IS NOT NULL THEN
        limits := _standing_limits(a.charged, p_spend -> 'limits', p_spend ->> 'kind')
             FROM attempts a WHERE a.run_id = t.current_run AND a.closed_at IS NULL;
    END IF;
    SELECT x.log_seq, CASE WHEN x.waiting = 0 THEN 0 ELSE jsonb_array_length(_inbox(p_thread)) END, r.stop_cut IS NOT NULL
      INTO seq, waiting, stop FROM threads x JOIN runs r ON r.id = x.current_run WHERE x.id = p_thread;
    outcome := 'ok';
END $$;

CREATE OR REPLACE FUNCTION _history(p_thread uuid, p_run uuid, p_messages json) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_messages IS NULL THEN RETURN; END IF;
    DELETE FROM partials WHERE thread_id = p_thread;
    INSERT INTO history (thread_id, chunk, parent, seq, run_id, fence, messages)
    SELECT p_thread, t.history_chunks + 1, t.history_head, t.log_seq, p_run, t.fence, p_messages FROM threads t WHERE t.id = p_thread;
    UPDATE threads SET history_chunks = history_chunks + 1, history_head = history_chunks + 1 WHERE id = p_thread;
END $$;

-- The messages that wait for the run under this claim; nothing when the claim is not the present one.
CREATE OR REPLACE FUNCTION inbox_v1(p_thread uuid, p_claim uuid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT _inbox(t.id) FROM threads t WHERE t.id = p_thread AND t.claim_id = p_claim
$$;

-- End the run, or go on with it when a message came that the agent has not seen ('continue' writes nothing). After an
-- accepted stop the end is 'stopped', whatever the agent reached. Repeatable by run and claim together.
-- outcome: ended | continue | fenced
CREATE OR REPLACE FUNCTION end_v1(p_thread uuid, p_run uuid, p_claim uuid, p_status text, p_reason text, p_error jsonb,
                                  p_cause text, p_facts jsonb, p_history json, p_data jsonb, p_new_run uuid,
                                  OUT outcome text, OUT status text, OUT seq bigint, OUT next_run uuid, OUT agent text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; v_reason text := p_reason; v_error jsonb := p_error;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    SELECT * INTO r FROM runs WHERE id = p_run AND thread_id = p_thread AND claim_id = p_claim;
    IF t.claim_id IS DISTINCT FROM p_claim THEN
        -- Our own end whose answer was lost, or somebody recorded us abandoned.
        outcome := CASE WHEN EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = p_run AND a.claim_id = p_claim
                                        AND a.outcome IN ('completed', 'stopped', 'failed'))
                        THEN 'ended' ELSE 'fenced' END;
        status := r.status; seq := t.log_seq;
        RETURN;
    END IF;
    status := CASE WHEN r.stop_cut IS NOT NULL THEN 'stopped' ELSE p_status END;
    IF status = 'completed' AND t.waiting > 0 AND jsonb_array_length(_inbox(p_thread)) > 0 THEN
        outcome := 'continue'; status := NULL; seq := t.log_seq;
        RETURN;
    END IF;
    IF status = 'stopped' THEN v_reason := coalesce(r.stop_reason, p_reason); v_error := NULL; END IF;
    PERFORM _facts(p_thread, p_run, p_facts);
    PERFORM _history(p_thread, p_run, p_history);
    next_run := _end(p_thread, p_run, status, v_reason, v_error, status, p_cause, p_data, p_new_run);
    outcome := 'ended'; agent := t.agent;
    SELECT x.log_seq INTO seq FROM threads x WHERE x.id = p_thread;
END $$;

-- Give a claim up early. Pending again if the agent never ran or may be retried, otherwise abandoned now instead of a ttl
-- later. The present holder says it, so it needs no waiting after a start of the database.
CREATE OR REPLACE FUNCTION release_v1(p_thread uuid, p_claim uuid, p_cause text, p_new_run uuid,
                                      OUT outcome text, OUT seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF t.claim_id IS DISTINCT FROM p_claim THEN outcome := 'fenced'; RETURN; END IF;
    outcome := _lapse(p_thread, p_cause, p_new_run);
    SELECT x.log_seq INTO seq FROM threads x WHERE x.id = p_thread;
END $$;

-- Hand a run over to another worker: no crash, and no retry used up. After a stop it ends instead.
-- p_failed: why this attempt has failed, if it is tried again by that, p_after from now.
-- outcome: handed_over | stopped | fenced
CREATE OR REPLACE FUNCTION hand_over_v2(p_thread uuid, p_run uuid, p_claim uuid, p_facts jsonb, p_history json, p_new_run uuid,
                                        p_failed jsonb, p_after interval, OUT outcome text, OUT seq bigint, OUT next_run uuid, OUT agent text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    agent := t.agent; seq := t.log_seq;
    IF t.claim_id IS DISTINCT FROM p_claim THEN
        outcome := coalesce((SELECT a.outcome FROM attempts a WHERE a.run_id = p_run AND a.claim_id = p_claim
                                AND a.outcome IN ('handed_over', 'stopped', 'failed')), 'fenced');
        outcome := CASE outcome WHEN 'failed' THEN 'handed_over' ELSE outcome END;
        RETURN;
    END IF;
    SELECT * INTO r FROM runs WHERE id = p_run;
    PERFORM _facts(p_thread, p_run, p_facts);
    PERFORM _history(p_thread, p_run, p_history);
    IF r.stop_cut IS NOT NULL THEN
        next_run := _end(p_thread, p_run, 'stopped', r.stop_reason, NULL, 'stopped', 'drain',
                         jsonb_build_object('by', r.stop_by), p_new_run);
        outcome := 'stopped';
    ELSE
        -- A start that was given back before the agent ran is no failed start.
        IF t.rec_no = 0 THEN UPDATE runs SET unacked = unacked - 1 WHERE id = p_run; END IF;
        IF p_failed IS NULL THEN
            PERFORM _close_attempt(p_thread, p_run, 'handed_over', 'drain', '{"text": "withdrawn"}');
        ELSE
            UPDATE runs SET failed_tries = failed_tries + 1 WHERE id = p_run;
            PERFORM _close_attempt(p_thread, p_run, 'failed', 'error', jsonb_build_object(
                'text', 'withdrawn', 'error', p_failed, 'again_in_s', extract(epoch FROM p_after)));
        END IF;
        PERFORM _unclaim(p_thread);
        PERFORM _again(p_thread, p_run, p_after);
        next_run := p_run;
        outcome := 'handed_over';
    END IF;
    SELECT x.log_seq INTO seq FROM threads x WHERE x.id = p_thread;
END $$;

-- Keep what the agent is saying, in case its process dies. FALSE: the claim is not the present one.
CREATE OR REPLACE FUNCTION partial_v1(p_thread uuid, p_claim uuid, p_message json) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF t.claim_id IS DISTINCT FROM p_claim THEN RETURN false; END IF;
    INSERT INTO partials (thread_id, fence, chunks, message) VALUES (p_thread, t.fence, t.history_chunks, p_message)
    ON CONFLICT (thread_id) DO UPDATE SET fence = excluded.fence, chunks = excluded.chunks, message = excluded.message;
    RETURN true;
END $$;

-- Pending runs whose nudge seems lost, for a worker with free slots. Each is handed to one asker every two seconds.
CREATE OR REPLACE FUNCTION pending_v1(p_agents text[], p_limit int) RETURNS SETOF uuid
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    UPDATE runs r SET take_at = clock_timestamp() + interval '2 s'
     WHERE r.id IN (SELECT x.id FROM runs x
                     WHERE x.status = 'pending' AND x.kind = 'agent' AND x.take_at <= clock_timestamp() AND x.agent = ANY (p_agents)
                     ORDER BY x.take_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED)
       AND r.status = 'pending'
    RETURNING r.thread_id
$$;

CREATE OR REPLACE FUNCTION register_v1(p_worker text, p_agents text[], p_capacity int, p_host text, p_pid int) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    INSERT INTO workers (id, agents, capacity, host, pid) VALUES (p_worker, p_agents, p_capacity, p_host, p_pid)
    ON CONFLICT (id) DO UPDATE SET agents = excluded.agents, capacity = excluded.capacity, host = excluded.host,
           pid = excluded.pid, seen_at = clock_timestamp()
$$;

-- Whether an operator asked this worker to hand its runs over and leave.
CREATE OR REPLACE FUNCTION draining_v1(p_worker text) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce((SELECT w.draining FROM workers w WHERE w.id = p_worker), false)
$$;

-- Ask workers by id, or by the name that an id begins with, to hand their runs over and leave; returns who was asked.
CREATE OR REPLACE FUNCTION drain_v1(p_worker text) RETURNS SETOF text LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    UPDATE workers SET draining = true
     WHERE (id = p_worker OR regexp_replace(id, '-[0-9a-f]{12}$', '') = p_worker)
       AND seen_at > clock_timestamp() - interval '1 min'
    RETURNING id
$$;

-- Forget a worker that leaves, and those that have been silent for an hour.
CREATE OR REPLACE FUNCTION unregister_v1(p_worker text) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    DELETE FROM workers WHERE id = p_worker OR seen_at < clock_timestamp() - interval '1 hour'
$$;
