-- What workers do: take a thread, record, end, give up; and what any of them does for the others: sweep.

-- Take the thread's claim and start its pending run, in one transaction that also records what a lapsed holder left.
-- p_start_key is the worker's own, fresh for each try: the same call after a lost answer returns the same start while
-- it lives. The claim's id is made here, one per start, so that no key can ever stand for two starts.
-- outcome: started | held | nothing | not_mine
CREATE OR REPLACE FUNCTION claim_v1(p_thread uuid, p_agents text[], p_worker text, p_start_key uuid, p_ttl interval,
                                    p_new_run uuid,
                                    OUT outcome text, OUT workspace text, OUT run uuid, OUT agent text, OUT principal text,
                                    OUT roles text[], OUT attempt int, OUT claim_id uuid, OUT fence bigint,
                                    OUT history_chunks bigint, OUT inbox jsonb, OUT lapsed text, OUT seq bigint, OUT fresh boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; c claims; r runs;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF NOT FOUND THEN outcome := 'nothing'; RETURN; END IF;
    SELECT * INTO r FROM runs WHERE id = t.current_run;
    IF r.status = 'running' AND r.start_key = p_start_key THEN
        outcome := 'started';
    ELSE
        -- This commit need not reach the disk before the worker goes on: its first record, which does, comes after it in
        -- the same log. If a crash of the database loses both, the run is still pending and the worker is fenced.
        PERFORM set_config('synchronous_commit', 'off', true);
        -- Waits for a renewal in progress, then sees it.
        SELECT * INTO c FROM claims WHERE thread_id = p_thread FOR UPDATE;
        IF FOUND AND c.expires_at > clock_timestamp() THEN outcome := 'held'; RETURN; END IF;
        IF r.status = 'running' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
            lapsed := _lapse(p_thread, 'lost claim', p_new_run);
            SELECT * INTO t FROM threads WHERE id = p_thread;
            seq := t.log_seq;
            SELECT * INTO r FROM runs WHERE id = t.current_run;
        END IF;
        IF r.status IS DISTINCT FROM 'pending' THEN outcome := 'nothing'; RETURN; END IF;
        IF r.agent <> ALL (p_agents) THEN outcome := 'not_mine'; agent := r.agent; RETURN; END IF;
        outcome := 'started';
        claim_id := gen_random_uuid();
        fence := _next_fence(t.fence);
        INSERT INTO claims (thread_id, claim_id, fence, holder, expires_at)
        VALUES (p_thread, claim_v1.claim_id, claim_v1.fence, p_worker, clock_timestamp() + p_ttl);
        UPDATE threads x SET fence = claim_v1.fence, claim_id = claim_v1.claim_id, rec_no = 0 WHERE id = p_thread;
        UPDATE runs x SET status = 'running', attempt = x.attempt + 1, unacked = x.unacked + 1,
               claim_id = claim_v1.claim_id, start_key = p_start_key,
               started_at = coalesce(x.started_at, clock_timestamp())
         WHERE id = r.id RETURNING * INTO r;
        INSERT INTO attempts (run_id, attempt, fence, claim_id, worker)
        VALUES (r.id, r.attempt, claim_v1.fence, claim_v1.claim_id, p_worker);
    END IF;
    SELECT * INTO t FROM threads WHERE id = p_thread;
    workspace := t.workspace; run := r.id; agent := r.agent; principal := r.principal; roles := r.roles;
    attempt := r.attempt; claim_id := t.claim_id; fence := t.fence; history_chunks := t.history_chunks; seq := t.log_seq;
    inbox := _inbox(p_thread);
    -- An earlier start that was never acknowledged has left no run_started.
    fresh := r.attempt = 1 OR NOT EXISTS (SELECT 1 FROM facts f WHERE f.run_id = r.id AND f.kind = 'run_started');
END $$;

-- The waiting messages that the current run is to see, oldest first.
CREATE OR REPLACE FUNCTION _inbox(p_thread uuid) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', i.id, 'seq', i.seq, 'sender', i.sender, 'content', i.content)
                              ORDER BY i.seq), '[]')
      FROM inbox i WHERE i.thread_id = p_thread AND i.state = 'waiting' AND i.mode = 'now'
$$;

-- Renew a whole process's claims in one statement, and say that the process lives. The claim's id is the only
-- condition: a lapsed claim that nobody took may be renewed. A row that is locked just now is 'busy', not lost.
-- result: renewed | lost | busy
CREATE OR REPLACE FUNCTION renew_v1(p_worker text, p_threads uuid[], p_claims uuid[], p_ttl interval)
RETURNS TABLE (claim_id uuid, result text, stop boolean, waiting int)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    -- A renewal that a crash of the database loses only shortens a claim.
    SELECT set_config('synchronous_commit', 'off', true);
    WITH alive AS (
        UPDATE workers w SET seen_at = clock_timestamp() WHERE w.id = p_worker
    ), mine AS MATERIALIZED (
        SELECT c.thread_id FROM unnest(p_threads, p_claims) AS q (thread_id, claim_id)
          JOIN claims c ON c.thread_id = q.thread_id AND c.claim_id = q.claim_id
         ORDER BY c.thread_id FOR NO KEY UPDATE OF c SKIP LOCKED
    ), done AS (
        UPDATE claims c SET expires_at = clock_timestamp() + p_ttl FROM mine WHERE c.thread_id = mine.thread_id
        RETURNING c.thread_id
    )
    SELECT q.claim_id,
           CASE WHEN d.thread_id IS NOT NULL THEN 'renewed'
                WHEN t.claim_id IS DISTINCT FROM q.claim_id THEN 'lost' ELSE 'busy' END,
           r.stop_cut IS NOT NULL, coalesce(t.waiting, 0)
      FROM unnest(p_threads, p_claims) AS q (thread_id, claim_id)
      LEFT JOIN done d ON d.thread_id = q.thread_id
      LEFT JOIN threads t ON t.id = q.thread_id
      LEFT JOIN runs r ON r.id = t.current_run AND r.claim_id = q.claim_id
$$;

-- Record facts and history under the claim, and consume messages together with the history that shows them. A run that
-- was asked to stop consumes nothing more: p_delivered and p_shown are left out then, and `stop` says so.
-- p_rec_no is 1, 2, 3 ... per start: a repeat is harmless. outcome: ok | fenced
CREATE OR REPLACE FUNCTION record_v1(p_thread uuid, p_claim uuid, p_rec_no bigint, p_facts jsonb, p_history json,
                                     p_delivered bigint[], p_shown json,
                                     OUT outcome text, OUT seq bigint, OUT waiting int, OUT stop boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF t.claim_id IS DISTINCT FROM p_claim THEN outcome := 'fenced'; RETURN; END IF;
    IF p_rec_no > t.rec_no THEN
        IF p_rec_no <> t.rec_no + 1 THEN RAISE EXCEPTION 'record % follows record %', p_rec_no, t.rec_no; END IF;
        IF p_rec_no = 1 THEN UPDATE runs SET unacked = 0 WHERE id = t.current_run; END IF;
        UPDATE threads SET rec_no = p_rec_no WHERE id = p_thread;
        PERFORM _facts(p_thread, t.current_run, p_facts);
        PERFORM _history(p_thread, t.current_run, p_history);
        IF NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = t.current_run AND r.stop_cut IS NOT NULL) THEN
            PERFORM _history(p_thread, t.current_run, p_shown);
            PERFORM _deliver(p_thread, t.current_run, p_delivered);
        END IF;
    END IF;
    SELECT x.log_seq, CASE WHEN x.waiting = 0 THEN 0 ELSE jsonb_array_length(_inbox(p_thread)) END, r.stop_cut IS NOT NULL
      INTO seq, waiting, stop FROM threads x JOIN runs r ON r.id = x.current_run WHERE x.id = p_thread;
    outcome := 'ok';
END $$;

CREATE OR REPLACE FUNCTION _history(p_thread uuid, p_run uuid, p_messages json) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_messages IS NULL THEN RETURN; END IF;
    INSERT INTO history (thread_id, chunk, run_id, fence, messages)
    SELECT p_thread, t.history_chunks + 1, p_run, t.fence, p_messages FROM threads t WHERE t.id = p_thread;
    UPDATE threads SET history_chunks = history_chunks + 1 WHERE id = p_thread;
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

-- Give a claim up early. Pending again if the agent never ran, otherwise abandoned now instead of a ttl later.
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

-- Lapsed claims, looked at without locks; lapse_v1 looks again under the thread's lock before it takes one.
CREATE OR REPLACE FUNCTION lapsed_v1(p_limit int) RETURNS SETOF uuid LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT c.thread_id FROM claims c WHERE c.expires_at <= clock_timestamp() LIMIT p_limit
$$;

-- result: NULL (renewed meanwhile, or somebody else is at it) | pending | stopped | abandoned | poison
CREATE OR REPLACE FUNCTION lapse_v1(p_thread uuid, p_new_run uuid, OUT result text, OUT seq bigint, OUT agent text, OUT run uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; c claims;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    SELECT * INTO c FROM claims WHERE thread_id = p_thread FOR UPDATE;
    IF NOT FOUND OR c.expires_at > clock_timestamp() THEN RETURN; END IF;
    result := _lapse(p_thread, 'lost claim', p_new_run);
    SELECT x.log_seq, x.agent, x.current_run INTO seq, agent, run FROM threads x WHERE x.id = p_thread;
END $$;

-- For the one process that knows that earlier lives of itself are over: the claims of all workers of this name (an id is
-- the name and twelve digits) count as lapsed from now on.
CREATE OR REPLACE FUNCTION disown_v1(p_name text) RETURNS bigint LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    WITH gone AS (
        UPDATE claims SET expires_at = clock_timestamp() - interval '1 ms' WHERE holder ~ ('^' || p_name || '-[0-9a-f]{12}$')
        RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

-- Pending runs whose nudge seems lost, for a worker with free slots. Each is handed to one asker every two seconds.
CREATE OR REPLACE FUNCTION pending_v1(p_agents text[], p_limit int) RETURNS SETOF uuid
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    UPDATE runs r SET take_at = clock_timestamp() + interval '2 s'
     WHERE r.id IN (SELECT x.id FROM runs x
                     WHERE x.status = 'pending' AND x.take_at <= clock_timestamp() AND x.agent = ANY (p_agents)
                     ORDER BY x.take_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED)
       AND r.status = 'pending'
    RETURNING r.thread_id
$$;

CREATE OR REPLACE FUNCTION register_v1(p_worker text, p_agents text[], p_capacity int, p_host text, p_pid int) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    INSERT INTO workers (id, agents, capacity, host, pid) VALUES (p_worker, p_agents, p_capacity, p_host, p_pid)
    ON CONFLICT (id) DO UPDATE SET agents = excluded.agents, capacity = excluded.capacity, host = excluded.host,
           pid = excluded.pid, started_at = clock_timestamp(), seen_at = clock_timestamp()
$$;

-- Forget a worker that leaves, and those that have been silent for an hour.
CREATE OR REPLACE FUNCTION unregister_v1(p_worker text) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    DELETE FROM workers WHERE id = p_worker OR seen_at < clock_timestamp() - interval '1 hour'
$$;
