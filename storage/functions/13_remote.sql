-- Calls of tools that executors carry out. A worker asks under its claim; one executor takes the call, or none does; the
-- worker learns how it came out, or gives it up. No call is ever queued again, so that none is carried out twice.

-- Whether whoever asked for a call still holds its thread, and its run was not asked to stop.
CREATE OR REPLACE FUNCTION _remote_wanted(c remote_calls) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM threads t JOIN runs r ON r.id = t.current_run
                    WHERE t.id = c.thread_id AND t.claim_id = c.claim_id AND r.stop_cut IS NULL)
$$;

-- Ask for a call, under the claim of the attempt that makes it. The same id again is the same call.
-- outcome: asked | fenced
CREATE OR REPLACE FUNCTION remote_ask_v1(p_thread uuid, p_claim uuid, p_id uuid, p_worker text, p_call text, p_tool text,
                                         p_queue text, p_args json, p_context json, p_timeout interval, OUT outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF t.claim_id IS DISTINCT FROM p_claim THEN outcome := 'fenced'; RETURN; END IF;
    INSERT INTO remote_calls (id, workspace, thread_id, run_id, attempt, claim_id, fence, asked_by, call_id, agent, tool, queue,
                              args, context, deadline)
    SELECT p_id, t.workspace, t.id, r.id, r.attempt, p_claim, t.fence, p_worker, p_call, r.agent, p_tool, p_queue,
           p_args, p_context, clock_timestamp() + p_timeout
      FROM runs r WHERE r.id = t.current_run
    ON CONFLICT (id) DO NOTHING;
    outcome := 'asked';
END $$;

-- Take calls of a queue, each for good: the one with an id, or those that have waited longest. What nobody waits for any
-- more is left to remote_tidy_v1.
CREATE OR REPLACE FUNCTION remote_take_v1(p_executor text, p_queue text, p_id uuid, p_limit int)
RETURNS TABLE (id uuid, workspace text, principal text, roles text[], thread uuid, run uuid, attempt int, fence bigint,
               asked_by text, call_id text, agent text, tool text, args json, context json, left_s float8)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    WITH next AS MATERIALIZED (
        SELECT c.id FROM remote_calls c
         WHERE c.queue = p_queue AND c.status = 'queued' AND (p_id IS NULL OR c.id = p_id)
           AND c.deadline > clock_timestamp() AND _remote_wanted(c)
         ORDER BY c.created_at, c.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE remote_calls c SET status = 'running', executor = p_executor, started_at = clock_timestamp()
      FROM next, runs r WHERE c.id = next.id AND c.status = 'queued' AND r.id = c.run_id
    RETURNING c.id, c.workspace, r.principal, r.roles, c.thread_id, c.run_id, c.attempt, c.fence, c.asked_by, c.call_id,
              c.agent, c.tool, c.args, c.context, extract(epoch FROM c.deadline - clock_timestamp())::float8
$$;

-- Say that an executor lives, and which of the calls that it carries out nobody waits for any more.
CREATE OR REPLACE FUNCTION remote_beat_v1(p_executor text, p_queue text, p_capacity int, p_host text, p_pid int, p_ids uuid[],
                                          OUT unwanted uuid[], OUT draining boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- What a crash of the database loses of this is said again a second later.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO workers AS w (id, agents, capacity, host, pid, queue)
    VALUES (p_executor, '{}', p_capacity, p_host, p_pid, p_queue)
    ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp() RETURNING w.draining INTO draining;
    -- It has taken these and does not know it: the answer was lost. No statement of ours takes as long as that.
    UPDATE remote_calls c SET status = 'failed', outcome = 'lost', ended_at = clock_timestamp(), args = NULL, context = NULL
     WHERE c.queue = p_queue AND c.status = 'running' AND c.executor = p_executor AND c.id <> ALL (p_ids)
       AND c.started_at < clock_timestamp() - interval '10 s';
    unwanted := ARRAY(SELECT q.id FROM unnest(p_ids) AS q (id) LEFT JOIN remote_calls c ON c.id = q.id
                       WHERE c.id IS NULL OR c.status <> 'running' OR NOT _remote_wanted(c));
END $$;

-- Record how a call came out; FALSE if it had been given up by then, or somebody else has it.
CREATE OR REPLACE FUNCTION remote_finish_v1(p_id uuid, p_executor text, p_outcome text, p_result json) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE remote_calls SET status = CASE p_outcome WHEN 'ok' THEN 'done' ELSE 'failed' END, outcome = p_outcome,
           result = p_result, ended_at = clock_timestamp(), args = NULL, context = NULL
     WHERE id = p_id AND executor = p_executor AND status = 'running';
    -- Or the answer of the first such call was lost.
    RETURN FOUND OR EXISTS (SELECT 1 FROM remote_calls c WHERE c.id = p_id AND c.executor = p_executor AND c.outcome = p_outcome);
END $$;

-- Give a call up, for whoever asked for it; if it has ended by then, that stands. One that was taken only with p_running.
-- One that is not there, as its asking is still under way, is given up here: the asking comes too late then.
-- `was`: queued | running | done | failed | given_up | NULL (nobody had asked for it)
CREATE OR REPLACE FUNCTION remote_give_up_v1(p_thread uuid, p_id uuid, p_claim uuid, p_running boolean,
                                             OUT was text, OUT outcome text, OUT result json, OUT executor text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE c remote_calls;
BEGIN
    -- This waits for an asking that has not committed. Without the claim there is nothing to do: nobody can ask any more.
    INSERT INTO remote_calls (id, workspace, thread_id, run_id, attempt, claim_id, fence, asked_by, call_id, agent, tool, queue,
                              deadline, status, ended_at)
    SELECT p_id, t.workspace, t.id, r.id, r.attempt, p_claim, t.fence, '', '', r.agent, '', '', clock_timestamp(), 'given_up',
           clock_timestamp()
      FROM runs r JOIN threads t ON t.current_run = r.id WHERE t.id = p_thread AND t.claim_id = p_claim
    ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN RETURN; END IF;
    SELECT * INTO c FROM remote_calls WHERE id = p_id AND claim_id = p_claim FOR NO KEY UPDATE;
    was := c.status; outcome := c.outcome; result := c.result; executor := c.executor;
    IF c.status = 'queued' OR c.status = 'running' AND p_running THEN
        UPDATE remote_calls SET status = 'given_up', ended_at = clock_timestamp(), args = NULL, context = NULL WHERE id = p_id;
    END IF;
END $$;

-- Which of these calls have ended, and how. A call whose executor was silent for p_silent is lost: it may or may not have
-- had its effect. NULL: do not judge that now.
CREATE OR REPLACE FUNCTION remote_ended_v1(p_ids uuid[], p_silent interval)
RETURNS TABLE (id uuid, status text, outcome text, result json, executor text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _remote_lose(ARRAY(SELECT c.id FROM remote_calls c WHERE c.id = ANY (p_ids) AND c.status = 'running'), p_silent);
    RETURN QUERY SELECT c.id, c.status, c.outcome, c.result, c.executor FROM remote_calls c
                  WHERE c.id = ANY (p_ids) AND c.ended_at IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION _remote_lose(p_ids uuid[], p_silent interval) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    UPDATE remote_calls c SET status = 'failed', outcome = 'lost', ended_at = clock_timestamp(), args = NULL, context = NULL
     WHERE c.id = ANY (p_ids) AND c.status = 'running'
       AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = c.executor AND w.seen_at > clock_timestamp() - p_silent)
       AND p_silent IS NOT NULL
$$;

-- End the calls of all queues that nobody waits for any more, and those whose executor has long been gone; forget those
-- that have ended long ago: facts and the history say how they came out.
CREATE OR REPLACE FUNCTION remote_tidy_v1(p_silent interval) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE remote_calls x SET status = 'given_up', ended_at = clock_timestamp(), args = NULL, context = NULL
     WHERE x.id IN (SELECT c.id FROM remote_calls c WHERE c.status = 'queued' AND NOT _remote_wanted(c)
                     FOR NO KEY UPDATE SKIP LOCKED)
       AND x.status = 'queued';
    PERFORM _remote_lose(ARRAY(SELECT c.id FROM remote_calls c WHERE c.status = 'running'
                                FOR NO KEY UPDATE SKIP LOCKED), p_silent);
    DELETE FROM remote_calls x
     WHERE x.id IN (SELECT c.id FROM remote_calls c WHERE c.ended_at < clock_timestamp() - interval '1 day'
                     LIMIT 10000 FOR UPDATE SKIP LOCKED);
END $$;
