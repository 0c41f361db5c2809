-- Pauses: a run that waits for people holds nothing, and resumes on any worker when the last request is answered.

-- Close the attempt with requests to people. A waiting message never prevents it: it is shown in the attempt that resumes.
-- p_requests: [{id, kind, call_id, tool, args, hash (hex), other_only, approvers, expires_in_s, metadata}]
-- outcome: paused | stop (a stop was asked for: end the run instead; nothing was written) | fenced
CREATE OR REPLACE FUNCTION pause_v1(p_thread uuid, p_run uuid, p_claim uuid, p_requests jsonb, p_facts jsonb, p_history json,
                                    OUT outcome text, OUT seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; q jsonb; v_expires timestamptz;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    seq := t.log_seq;
    IF t.claim_id IS DISTINCT FROM p_claim THEN
        outcome := CASE WHEN EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = p_run AND a.claim_id = p_claim
                                        AND a.outcome = 'interrupted') THEN 'paused' ELSE 'fenced' END;
        RETURN;
    END IF;
    SELECT * INTO r FROM runs WHERE id = p_run;
    IF r.stop_cut IS NOT NULL THEN outcome := 'stop'; RETURN; END IF;
    PERFORM _facts(p_thread, p_run, p_facts);
    PERFORM _history(p_thread, p_run, p_history);
    FOR q IN SELECT x.value FROM jsonb_array_elements(p_requests) AS x LOOP
        v_expires := clock_timestamp() + make_interval(secs => (q ->> 'expires_in_s')::float8);
        INSERT INTO requests (id, thread_id, run_id, attempt, kind, call_id, tool, args, args_hash, requested_by, other_only,
                              approvers, expires_at, metadata)
        VALUES ((q ->> 'id')::uuid, p_thread, p_run, r.attempt, q ->> 'kind', q ->> 'call_id', q ->> 'tool', q -> 'args',
                decode(q ->> 'hash', 'hex'), r.principal, (q ->> 'other_only')::boolean,
                CASE WHEN jsonb_typeof(q -> 'approvers') = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(q -> 'approvers')) END,
                v_expires, q -> 'metadata');
        PERFORM _fact(p_thread, p_run, 'request_opened', jsonb_strip_nulls(jsonb_build_object(
            'request', q -> 'id', 'kind', q -> 'kind', 'call_id', q -> 'call_id', 'tool', q -> 'tool', 'args', q -> 'args',
            'args_hash', q -> 'hash', 'approvers', q -> 'approvers', 'other_only', q -> 'other_only',
            'metadata', q -> 'metadata', 'expires_at', v_expires)));
    END LOOP;
    PERFORM _close_attempt(p_thread, p_run, 'interrupted', NULL, '{}');
    PERFORM _fact(p_thread, p_run, 'paused', jsonb_build_object('requests', jsonb_array_length(p_requests)));
    PERFORM _unclaim(p_thread);
    DELETE FROM partials WHERE thread_id = p_thread;
    UPDATE runs SET status = 'paused' WHERE id = p_run;
    UPDATE threads SET state = 'paused' WHERE id = p_thread RETURNING log_seq INTO seq;
    outcome := 'paused';
END $$;

-- Write one decision. The caller holds the thread's lock and has checked that it fits.
CREATE OR REPLACE FUNCTION _settle(p_request uuid, p_decision jsonb, p_by text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE q requests;
BEGIN
    UPDATE requests SET status = CASE p_decision ->> 'kind' WHEN 'reject' THEN 'denied' ELSE 'answered' END,
           answer = p_decision, answered_by = p_by, answered_at = clock_timestamp()
     WHERE id = p_request AND status = 'open' RETURNING * INTO q;
    IF NOT FOUND THEN RAISE EXCEPTION 'request % is not open', p_request; END IF;
    PERFORM _fact(q.thread_id, q.run_id, 'request_answered', jsonb_build_object('request', q.id, 'kind', q.kind,
                  'call_id', q.call_id, 'tool', q.tool, 'by', p_by, 'decision', p_decision ->> 'kind')
                  || (p_decision - 'kind'));
END $$;

-- Answer a request, once. The same person's same answer again returns what was recorded. When it was the last open one,
-- the run becomes pending in the same transaction.
-- p_hash: of the arguments that were seen, or NULL. p_decision: {kind: approve | edit | reject | reply, ...}
-- outcome: ok | not_found | forbidden | own_request | wrong_decision | args_changed | already_answered | expired | closed
CREATE OR REPLACE FUNCTION answer_v1(p_workspace text, p_principal text, p_roles text[], p_request uuid, p_decision jsonb,
                                     p_hash bytea,
                                     OUT outcome text, OUT thread uuid, OUT run uuid, OUT kind text, OUT decision jsonb,
                                     OUT answered_by text, OUT duplicate boolean, OUT open int, OUT status text, OUT seq bigint,
                                     OUT agent text, OUT dispatch uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; q requests; v_access text;
BEGIN
    duplicate := false;
    SELECT * INTO q FROM requests WHERE id = p_request;
    SELECT * INTO t FROM threads WHERE id = q.thread_id FOR NO KEY UPDATE;
    SELECT * INTO q FROM requests WHERE id = p_request;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    -- Who could have answered may learn what was decided, though the thread is closed to them by then.
    IF v_access IS NULL AND t.workspace = p_workspace AND _is_approver(q, p_principal, p_roles) THEN v_access := 'read'; END IF;
    IF v_access IS NULL THEN outcome := 'not_found'; RETURN; END IF;
    thread := t.id; run := q.run_id; kind := q.kind; agent := t.agent;
    decision := q.answer; answered_by := q.answered_by;
    IF q.status = 'open' AND q.expires_at <= clock_timestamp() THEN
        PERFORM _settle(q.id, '{"kind": "reject", "reason": "expired"}', 'system');
        outcome := 'expired';
    ELSIF q.status = 'cancelled' THEN
        outcome := 'closed';
    ELSIF q.status <> 'open' THEN
        duplicate := q.answered_by = p_principal AND q.answer = p_decision;
        outcome := CASE WHEN duplicate THEN 'ok' ELSE 'already_answered' END;
    ELSIF NOT (_is_approver(q, p_principal, p_roles) OR (q.approvers IS NULL AND v_access = 'write')) THEN
        outcome := 'forbidden';
    ELSIF p_decision ->> 'kind' <> ALL (CASE q.kind WHEN 'approval' THEN ARRAY['approve', 'edit', 'reject'] ELSE ARRAY['reply', 'reject'] END) THEN
        outcome := 'wrong_decision';
    ELSIF q.other_only AND q.requested_by = p_principal AND p_decision ->> 'kind' IN ('approve', 'edit') THEN
        outcome := 'own_request';
    ELSIF p_hash <> q.args_hash THEN
        outcome := 'args_changed';
    ELSE
        PERFORM _settle(q.id, p_decision, p_principal);
        outcome := 'ok'; decision := p_decision; answered_by := p_principal;
    END IF;
    open := (SELECT count(*) FROM requests x WHERE x.run_id = q.run_id AND x.status = 'open');
    dispatch := _resume_if_answered(t.id, q.run_id);
    SELECT x.status INTO status FROM runs x WHERE x.id = q.run_id;
    SELECT x.log_seq INTO seq FROM threads x WHERE x.id = t.id;
END $$;

CREATE OR REPLACE FUNCTION _resume_if_answered(p_thread uuid, p_run uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM runs r WHERE r.id = p_run AND r.status = 'paused')
       AND NOT EXISTS (SELECT 1 FROM requests q WHERE q.run_id = p_run AND q.status = 'open') THEN
        PERFORM _again(p_thread, p_run, interval '1 s');
        RETURN p_run;
    END IF;
    RETURN NULL;
END $$;

-- Threads with requests whose time is over, looked at without locks; expire_v1 looks again under the lock.
CREATE OR REPLACE FUNCTION expired_v1(p_limit int) RETURNS SETOF uuid LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT DISTINCT q.thread_id FROM requests q
     WHERE q.status = 'open' AND q.expires_at IS NOT NULL AND q.expires_at <= clock_timestamp() LIMIT p_limit
$$;

-- Deny a thread's requests whose time is over, as the system, on the record; the run goes on when none is left.
CREATE OR REPLACE FUNCTION expire_v1(p_thread uuid, OUT expired int, OUT seq bigint, OUT agent text, OUT run uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; q record;
BEGIN
    expired := 0;
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    FOR q IN SELECT x.id FROM requests x WHERE x.thread_id = p_thread AND x.status = 'open' AND x.expires_at <= clock_timestamp()
              ORDER BY x.created_at, x.id LOOP
        PERFORM _settle(q.id, '{"kind": "reject", "reason": "expired"}', 'system');
        expired := expired + 1;
    END LOOP;
    IF expired > 0 THEN run := _resume_if_answered(p_thread, t.current_run); END IF;
    agent := t.agent;
    SELECT x.log_seq INTO seq FROM threads x WHERE x.id = p_thread;
END $$;
