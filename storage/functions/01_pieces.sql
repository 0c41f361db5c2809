-- Private pieces. Each expects that its caller holds the thread's lock.
--
-- THE ONE LOCK. Every function that decides anything about a thread first runs
--     SELECT ... FROM threads WHERE id = p_thread FOR NO KEY UPDATE
-- as a statement of its own. Under READ COMMITTED each later statement takes a new snapshot, so it sees all that
-- earlier holders of the lock committed; a lock and a read in one statement would read from before the wait.
-- Lock order: threads, claims, runs, then inserts. FOR NO KEY UPDATE lets foreign-key checks pass.

-- Whether a request is open to somebody beyond those who may write to its thread: named in it, or, when nobody is named,
-- an approver by role.
CREATE OR REPLACE FUNCTION _is_approver(q requests, p_principal text, p_roles text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN q.approvers IS NOT NULL THEN p_principal = ANY (q.approvers)
                ELSE q.kind = 'approval' AND 'approver' = ANY (p_roles) END
$$;

-- What a principal may do with a thread: 'write', 'read', or NULL for nothing at all. Whoever a request is open to may
-- read what it is about.
CREATE OR REPLACE FUNCTION _access(p_thread uuid, p_owner text, p_principal text, p_roles text[]) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN p_owner = p_principal OR 'operator' = ANY (p_roles) THEN 'write'
                ELSE coalesce((SELECT m.access FROM members m WHERE m.thread_id = p_thread AND m.principal = p_principal),
                              (SELECT 'read' FROM requests q WHERE q.thread_id = p_thread AND q.status = 'open'
                                  AND _is_approver(q, p_principal, p_roles) LIMIT 1)) END
$$;

-- A fence is larger than every earlier one of its thread and, as a hybrid clock, larger than any that a primary
-- which is gone may have given out and lost.
CREATE OR REPLACE FUNCTION _next_fence(p_old bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT greatest(p_old + 1, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)
$$;

CREATE OR REPLACE FUNCTION _fact(p_thread uuid, p_run uuid, p_kind text, p_data jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE s bigint; f bigint;
BEGIN
    UPDATE threads SET log_seq = log_seq + 1, updated_at = clock_timestamp() WHERE id = p_thread
    RETURNING log_seq, fence INTO s, f;
    INSERT INTO facts (thread_id, seq, run_id, fence, kind, data) VALUES (p_thread, s, p_run, f, p_kind, p_data);
    RETURN s;
END $$;

-- Many facts at once, in order.
CREATE OR REPLACE FUNCTION _facts(p_thread uuid, p_run uuid, p_facts jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE n int := jsonb_array_length(p_facts); s bigint; f bigint;
BEGIN
    IF n = 0 THEN RETURN; END IF;
    UPDATE threads SET log_seq = log_seq + n, updated_at = clock_timestamp() WHERE id = p_thread
    RETURNING log_seq - n, fence INTO s, f;
    INSERT INTO facts (thread_id, seq, run_id, fence, kind, data)
    SELECT p_thread, s + x.o, p_run, f, x.fact ->> 'kind', coalesce(x.fact -> 'data', '{}')
      FROM jsonb_array_elements(p_facts) WITH ORDINALITY AS x (fact, o);
END $$;

-- Mark waiting messages as consumed by a run. All of them must wait: a message is consumed exactly once.
CREATE OR REPLACE FUNCTION _deliver(p_thread uuid, p_run uuid, p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE n int := cardinality(p_seqs); done int; m record;
BEGIN
    IF n = 0 THEN RETURN; END IF;
    UPDATE inbox SET state = 'delivered', run_id = p_run, settled_at = clock_timestamp()
     WHERE thread_id = p_thread AND seq = ANY (p_seqs) AND state = 'waiting';
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> n THEN RAISE EXCEPTION 'of % messages only % were waiting', n, done; END IF;
    UPDATE threads SET waiting = waiting - n WHERE id = p_thread;
    FOR m IN SELECT id, sender FROM inbox WHERE thread_id = p_thread AND seq = ANY (p_seqs) ORDER BY seq LOOP
        PERFORM _fact(p_thread, p_run, 'message_delivered', jsonb_build_object('message', m.id, 'by', m.sender));
    END LOOP;
END $$;

-- Give waiting messages back to their senders, with the reason.
CREATE OR REPLACE FUNCTION _return(p_thread uuid, p_run uuid, p_mode text, p_upto bigint, p_reason text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE m record;
BEGIN
    FOR m IN UPDATE inbox SET state = 'returned', reason = p_reason, settled_at = clock_timestamp()
              WHERE thread_id = p_thread AND state = 'waiting' AND mode = p_mode AND seq <= p_upto
             RETURNING id, sender LOOP
        UPDATE threads SET waiting = waiting - 1 WHERE id = p_thread;
        PERFORM _fact(p_thread, p_run, 'message_returned',
                      jsonb_build_object('message', m.id, 'by', m.sender, 'reason', p_reason));
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION _close_attempt(p_thread uuid, p_run uuid, p_outcome text, p_cause text, p_data jsonb)
RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE a attempts;
BEGIN
    PERFORM _settle_attempt(p_run);
    UPDATE attempts SET outcome = p_outcome, cause = p_cause, closed_at = clock_timestamp()
     WHERE run_id = p_run AND closed_at IS NULL RETURNING * INTO a;
    IF FOUND THEN
        PERFORM _fact(p_thread, p_run, 'attempt_closed', p_data || jsonb_strip_nulls(jsonb_build_object(
            'attempt', a.attempt, 'outcome', p_outcome, 'cause', p_cause, 'worker', a.worker)));
    END IF;
END $$;

-- Take the claim away from whoever holds it.
CREATE OR REPLACE FUNCTION _unclaim(p_thread uuid) RETURNS void LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    DELETE FROM claims WHERE thread_id = p_thread;
    UPDATE threads SET claim_id = NULL WHERE id = p_thread;
$$;

-- Make a run that was running or paused pending again, to be taken from now on; a nudge usually comes first.
CREATE OR REPLACE FUNCTION _again(p_thread uuid, p_run uuid, p_after interval) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    DELETE FROM partials WHERE thread_id = p_thread;
    UPDATE runs SET status = 'pending', take_at = clock_timestamp() + p_after WHERE id = p_run;
    UPDATE threads SET state = 'busy' WHERE id = p_thread;
$$;

-- What the agent was saying when it was cut off becomes part of the history, unless more was recorded since.
CREATE OR REPLACE FUNCTION _keep_partial(p_thread uuid, p_run uuid) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE p record;
BEGIN
    DELETE FROM partials WHERE thread_id = p_thread RETURNING fence, chunks, message INTO p;
    IF EXISTS (SELECT 1 FROM threads t WHERE t.id = p_thread AND t.fence = p.fence AND t.history_chunks = p.chunks) THEN
        PERFORM _history(p_thread, p_run, json_build_array(p.message));
        -- Whoever watched learns what of it was kept.
        PERFORM _fact(p_thread, p_run, 'model_called', jsonb_build_object('model', NULL, 'state', 'interrupted', 'calls', '[]'::jsonb,
            'text', (SELECT string_agg(x.value ->> 'content', '') FROM json_array_elements(p.message -> 'parts') AS x),
            'input_tokens', 0, 'output_tokens', 0, 'latency_ms', NULL, 'cost', NULL, 'cost_total', coalesce(
                (SELECT f.data ->> 'cost_total' FROM facts f WHERE f.run_id = p_run AND f.kind = 'model_called'
                  ORDER BY f.seq DESC LIMIT 1), '0')));
    END IF;
END $$;

-- What a run was admitted with, as each of its facts tells it.
CREATE OR REPLACE FUNCTION _admission(r runs) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN r.id IS NOT NULL THEN jsonb_build_object('principal', r.principal, 'interface', r.interface,
        'environment', r.environment, 'budget', r.budget) END
$$;

-- What a run of this agent is admitted with. p_admission: {interface, environment, budget | budgets: {agent: budget}}
CREATE OR REPLACE FUNCTION _budget(p_admission jsonb, p_agent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(p_admission ->> 'budget', p_admission -> 'budgets' ->> p_agent)
$$;

CREATE OR REPLACE FUNCTION _new_run(p_thread uuid, p_run uuid, p_principal text, p_roles text[], p_admission jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO runs (id, thread_id, run_no, agent, principal, roles, first_seq, fence_before, take_at, interface, environment, budget)
    SELECT p_run, p_thread, t.run_no + 1, t.agent, p_principal, p_roles, t.log_seq, t.fence,
           clock_timestamp() + interval '1 s', p_admission ->> 'interface', p_admission ->> 'environment',
           _budget(p_admission, t.agent)
      FROM threads t WHERE t.id = p_thread;
    UPDATE threads SET state = 'busy', current_run = p_run, run_no = run_no + 1,
           status = CASE status WHEN 'completed' THEN 'active' ELSE status END
     WHERE id = p_thread;
END $$;

-- The end of the current run: the only place that writes run_ended. What still waits starts the next run in the same
-- transaction, as if it had come just after the end. Returns that next run, or NULL.
CREATE OR REPLACE FUNCTION _end(p_thread uuid, p_run uuid, p_status text, p_reason text, p_error jsonb, p_outcome text,
                                p_cause text, p_data jsonb, p_new_run uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE r runs; m inbox;
BEGIN
    SELECT * INTO r FROM runs WHERE id = p_run;
    PERFORM _keep_partial(p_thread, p_run);
    PERFORM _close_attempt(p_thread, p_run, p_outcome, p_cause, '{}');
    IF r.stop_cut IS NOT NULL THEN PERFORM _return(p_thread, p_run, 'now', r.stop_cut, 'stopped'); END IF;
    IF r.stop_cut_next IS NOT NULL THEN PERFORM _return(p_thread, p_run, 'next', r.stop_cut_next, 'stopped'); END IF;
    -- A poisonous message must not start one failing run after the other.
    IF p_reason = 'poison' THEN
        PERFORM _return(p_thread, p_run, 'now', (SELECT t.inbox_seq FROM threads t WHERE t.id = p_thread), 'poison');
    END IF;
    PERFORM _cancel_requests(p_thread, p_run, coalesce(r.stop_by, 'runner'));
    PERFORM _fact(p_thread, p_run, 'run_ended', p_data || jsonb_build_object('status', p_status)
        || CASE WHEN p_reason IS NULL THEN '{}' ELSE jsonb_build_object('reason', p_reason) END
        || CASE WHEN p_error IS NULL THEN '{}' ELSE jsonb_build_object('error', p_error) END);
    UPDATE runs SET status = p_status, reason = p_reason, error = p_error, ended_at = clock_timestamp() WHERE id = p_run;
    PERFORM _unclaim(p_thread);
    SELECT * INTO m FROM inbox WHERE thread_id = p_thread AND state = 'waiting' ORDER BY seq LIMIT 1;
    IF NOT FOUND THEN
        UPDATE threads SET state = 'idle', current_run = NULL WHERE id = p_thread;
        RETURN NULL;
    END IF;
    UPDATE inbox SET mode = 'now', for_run = p_new_run
     WHERE thread_id = p_thread AND state = 'waiting' AND (seq = m.seq OR mode = 'now');
    PERFORM _new_run(p_thread, p_new_run, m.sender, m.roles, jsonb_build_object(
        'interface', m.interface, 'environment', m.environment, 'budget', m.budget));
    RETURN p_new_run;
END $$;

-- Open requests of a run that ends are closed on the record.
CREATE OR REPLACE FUNCTION _cancel_requests(p_thread uuid, p_run uuid, p_by text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE q record;
BEGIN
    FOR q IN UPDATE requests SET status = 'cancelled' WHERE run_id = p_run AND status = 'open' RETURNING id, kind LOOP
        PERFORM _fact(p_thread, p_run, 'request_answered',
                      jsonb_build_object('request', q.id, 'kind', q.kind, 'by', p_by, 'decision', 'cancelled'));
    END LOOP;
END $$;

-- What a run's own calls of models came to, by its facts: those of agents that it delegated to among them.
CREATE OR REPLACE FUNCTION _spent(p_run uuid) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('model_calls', count(*), 'input_tokens', coalesce(sum((m.data ->> 'input_tokens')::bigint), 0),
                              'output_tokens', coalesce(sum((m.data ->> 'output_tokens')::bigint), 0),
                              'cost', coalesce(sum((m.data ->> 'cost')::numeric), 0)::text)
      FROM facts m WHERE m.run_id = p_run
       AND (m.kind = 'model_called' OR m.kind = 'delegated' AND m.data ->> 'did' = 'model_called')
$$;

-- What is known of a run whose holder has gone: for whoever asks why.
CREATE OR REPLACE FUNCTION _forensic(p_thread uuid, p_run uuid, p_cause text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'cause', p_cause, 'worker', c.holder, 'attempt', r.attempt, 'retried', r.retried, 'last_seq', t.log_seq,
        'lease_age_s', round(extract(epoch FROM clock_timestamp() - c.acquired_at)::numeric, 3),
        'silent_s', CASE WHEN isfinite(c.expires_at)
                         THEN round(extract(epoch FROM clock_timestamp() - (c.expires_at - c.ttl))::numeric, 3) END,
        'unknown_calls', (
            SELECT coalesce(jsonb_agg(jsonb_build_object('call_id', b.data -> 'call_id', 'tool', b.data -> 'tool') ORDER BY b.seq), '[]')
              FROM facts b WHERE b.run_id = p_run AND b.kind = 'tool_called' AND NOT EXISTS (
                   SELECT 1 FROM facts e WHERE e.run_id = p_run AND e.kind = 'tool_returned' AND e.seq > b.seq
                      AND e.data -> 'call_id' = b.data -> 'call_id')),
        'spend', _spent(p_run))
      FROM threads t JOIN runs r ON r.id = p_run LEFT JOIN claims c ON c.thread_id = t.id WHERE t.id = p_thread
$$;

-- What a lapsed or given up claim leaves. A worker's first act is record number 1, before the agent runs, so rec_no = 0
-- proves that the agent never ran and the run may start again; five starts in a row without it are poison. Otherwise the
-- effects are unknown: failed(abandoned), or another attempt where the agent's settings allow one. After a stop every
-- exit is 'stopped'. result: pending | stopped | abandoned | poison
CREATE OR REPLACE FUNCTION _lapse(p_thread uuid, p_cause text, p_new_run uuid) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; lost jsonb; v_reason text := 'abandoned'; v_text text := 'the run was abandoned: its claim lapsed';
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread;
    SELECT * INTO r FROM runs WHERE id = t.current_run;
    IF r.status IS DISTINCT FROM 'running' THEN RAISE EXCEPTION 'a lapse needs a running run'; END IF;
    lost := _forensic(p_thread, r.id, p_cause);
    IF r.stop_cut IS NOT NULL THEN
        PERFORM _end(p_thread, r.id, 'stopped', r.stop_reason, NULL, 'abandoned', p_cause,
                     jsonb_build_object('by', r.stop_by, 'lost', lost), p_new_run);
        RETURN 'stopped';
    END IF;
    IF t.rec_no = 0 AND r.unacked >= 5 THEN
        v_reason := 'poison';
        v_text := 'five starts in a row died before the agent ran';
    ELSIF t.rec_no = 0 OR r.retried < r.retry_max THEN
        PERFORM _close_attempt(p_thread, r.id, 'abandoned', p_cause, jsonb_build_object('text', 'withdrawn', 'lost', lost));
        IF t.rec_no > 0 THEN UPDATE runs SET retried = retried + 1 WHERE id = r.id; END IF;
        PERFORM _unclaim(p_thread);
        PERFORM _again(p_thread, r.id, interval '0');
        RETURN 'pending';
    END IF;
    PERFORM _end(p_thread, r.id, 'failed', v_reason, lost || jsonb_build_object('type', v_reason, 'message', v_text),
                 'abandoned', p_cause, '{"by": "runner"}', p_new_run);
    RETURN v_reason;
END $$;

-- Ask a run to stop. The first stop fixes its cut-off; repeats change nothing. A pending or paused run ends at once.
CREATE OR REPLACE FUNCTION _stop(p_thread uuid, p_run uuid, p_whole_thread boolean, p_by text, p_reason text,
                                 p_new_run uuid) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread;
    SELECT * INTO r FROM runs WHERE id = p_run;
    UPDATE runs SET stop_cut = coalesce(stop_cut, t.inbox_seq), stop_by = coalesce(stop_by, p_by),
           stop_reason = coalesce(stop_reason, p_reason),
           stop_cut_next = CASE WHEN p_whole_thread THEN coalesce(stop_cut_next, t.inbox_seq) ELSE stop_cut_next END
     WHERE id = p_run;
    IF r.stop_cut IS NULL OR (p_whole_thread AND r.stop_cut_next IS NULL) THEN
        PERFORM _fact(p_thread, p_run, 'stop_requested', jsonb_build_object('by', p_by, 'reason', p_reason,
                      'scope', CASE WHEN p_whole_thread THEN 'thread' ELSE 'run' END));
    END IF;
    IF r.status = 'running' THEN RETURN 'requested'; END IF;
    PERFORM _end(p_thread, p_run, 'stopped', p_reason, NULL, 'stopped', NULL, jsonb_build_object('by', p_by), p_new_run);
    RETURN 'stopped';
END $$;
