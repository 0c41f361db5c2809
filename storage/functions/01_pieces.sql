-- Private pieces. Each expects that its caller holds the thread's lock.
--
-- THE ONE LOCK. Every function that decides anything about a thread first runs
--     SELECT ... FROM threads WHERE id = p_thread FOR NO KEY UPDATE
-- as a statement of its own. Under READ COMMITTED each later statement takes a new snapshot, so it sees all that
-- earlier holders of the lock committed; a lock and a read in one statement would read from before the wait.
-- Lock order: threads, claims, runs, then inserts. FOR NO KEY UPDATE lets foreign-key checks pass.

-- What a principal may do with a thread: 'write', 'read', or NULL for nothing at all.
CREATE OR REPLACE FUNCTION _access(p_thread uuid, p_owner text, p_principal text, p_roles text[]) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN p_owner = p_principal OR 'operator' = ANY (p_roles) THEN 'write'
                ELSE (SELECT m.access FROM members m WHERE m.thread_id = p_thread AND m.principal = p_principal) END
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

CREATE OR REPLACE FUNCTION _close_attempt(p_thread uuid, p_run uuid, p_outcome text, p_cause text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE a attempts;
BEGIN
    UPDATE attempts SET outcome = p_outcome, cause = p_cause, closed_at = clock_timestamp()
     WHERE run_id = p_run AND closed_at IS NULL RETURNING * INTO a;
    IF FOUND THEN
        PERFORM _fact(p_thread, p_run, 'attempt_closed', jsonb_strip_nulls(jsonb_build_object(
            'attempt', a.attempt, 'outcome', p_outcome, 'cause', p_cause, 'worker', a.worker)));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION _new_run(p_thread uuid, p_run uuid, p_principal text, p_roles text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO runs (id, thread_id, run_no, agent, principal, roles, first_seq, fence_before, take_at)
    SELECT p_run, p_thread, t.run_no + 1, t.agent, p_principal, p_roles, t.log_seq, t.fence,
           clock_timestamp() + interval '1 s'
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
    PERFORM _close_attempt(p_thread, p_run, p_outcome, p_cause);
    IF r.stop_cut IS NOT NULL THEN PERFORM _return(p_thread, p_run, 'now', r.stop_cut, 'stopped'); END IF;
    IF r.stop_cut_next IS NOT NULL THEN PERFORM _return(p_thread, p_run, 'next', r.stop_cut_next, 'stopped'); END IF;
    -- A poisonous message must not start one failing run after the other.
    IF p_reason = 'poison' THEN
        PERFORM _return(p_thread, p_run, 'now', (SELECT t.inbox_seq FROM threads t WHERE t.id = p_thread), 'poison');
    END IF;
    UPDATE requests SET status = 'cancelled' WHERE run_id = p_run AND status = 'open';
    PERFORM _fact(p_thread, p_run, 'run_ended', p_data || jsonb_build_object('status', p_status)
        || CASE WHEN p_reason IS NULL THEN '{}' ELSE jsonb_build_object('reason', p_reason) END
        || CASE WHEN p_error IS NULL THEN '{}' ELSE jsonb_build_object('error', p_error) END);
    UPDATE runs SET status = p_status, reason = p_reason, error = p_error, ended_at = clock_timestamp() WHERE id = p_run;
    DELETE FROM claims WHERE thread_id = p_thread;
    UPDATE threads SET claim_id = NULL WHERE id = p_thread;
    SELECT * INTO m FROM inbox WHERE thread_id = p_thread AND state = 'waiting' ORDER BY seq LIMIT 1;
    IF NOT FOUND THEN
        UPDATE threads SET state = 'idle', current_run = NULL WHERE id = p_thread;
        RETURN NULL;
    END IF;
    UPDATE inbox SET mode = 'now', for_run = p_new_run
     WHERE thread_id = p_thread AND state = 'waiting' AND (seq = m.seq OR mode = 'now');
    PERFORM _new_run(p_thread, p_new_run, m.sender, m.roles);
    RETURN p_new_run;
END $$;

-- What a lapsed or given up claim leaves. A worker's first act is record number 1, before the agent runs, so rec_no = 0
-- proves that the agent never ran and the run may start again; five starts in a row without it are poison. Otherwise
-- the effects are unknown: failed(abandoned). After a stop every exit is 'stopped'.
CREATE OR REPLACE FUNCTION _lapse(p_thread uuid, p_cause text, p_new_run uuid) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; c claims; lost jsonb;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread;
    SELECT * INTO r FROM runs WHERE id = t.current_run;
    SELECT * INTO c FROM claims WHERE thread_id = p_thread;
    IF r.status IS DISTINCT FROM 'running' THEN RAISE EXCEPTION 'a lapse needs a running run'; END IF;
    IF r.stop_cut IS NOT NULL THEN
        PERFORM _end(p_thread, r.id, 'stopped', r.stop_reason, NULL, 'abandoned', p_cause, '{}', p_new_run);
        RETURN 'stopped';
    END IF;
    IF t.rec_no > 0 THEN
        lost := jsonb_build_object('type', 'abandoned', 'message', 'the run was abandoned: its claim lapsed', 'cause', p_cause,
                                   'worker', c.holder, 'lease_age_s', extract(epoch FROM clock_timestamp() - c.acquired_at));
        PERFORM _end(p_thread, r.id, 'failed', 'abandoned', lost, 'abandoned', p_cause, '{"by": "runner"}', p_new_run);
        RETURN 'abandoned';
    END IF;
    IF r.unacked >= 5 THEN
        lost := jsonb_build_object('type', 'poison', 'message', 'five starts in a row died before the agent ran');
        PERFORM _end(p_thread, r.id, 'failed', 'poison', lost, 'abandoned', p_cause, '{"by": "runner"}', p_new_run);
        RETURN 'poison';
    END IF;
    PERFORM _close_attempt(p_thread, r.id, 'abandoned', p_cause);
    DELETE FROM claims WHERE thread_id = p_thread;
    UPDATE threads SET claim_id = NULL WHERE id = p_thread;
    UPDATE runs SET status = 'pending', take_at = clock_timestamp() WHERE id = r.id;
    RETURN 'pending';
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
