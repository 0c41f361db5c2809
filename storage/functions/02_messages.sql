-- What people do: send, stop. One lock decides what a message means; a key makes the call repeatable.

-- outcome: ok | not_found | forbidden | key_conflict | thread_exists | thread_archived | thread_busy | inbox_full
-- p_agent: not NULL makes the thread, owned by the sender, if there is none of that id.
-- p_admission: what a run that the message starts, now or later, is admitted with (see _budget).
CREATE OR REPLACE FUNCTION send_v2(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_agent text,
                                   p_key text, p_hash bytea, p_content text, p_message uuid, p_new_run uuid,
                                   p_on_busy text, p_inbox_max int, p_admission jsonb,
                                   OUT outcome text, OUT disposition text, OUT message uuid, OUT run uuid, OUT seq bigint,
                                   OUT duplicate boolean, OUT has_worker boolean, OUT agent text, OUT dispatch uuid,
                                   OUT holder text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; m inbox; v_access text; v_mode text := 'now';
BEGIN
    duplicate := false;
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF NOT FOUND AND p_agent IS NOT NULL THEN
        INSERT INTO workspaces (id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
        INSERT INTO threads (id, workspace, owner, agent) VALUES (p_thread, p_workspace, p_principal, p_agent)
        ON CONFLICT DO NOTHING;
        SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    END IF;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL THEN outcome := 'not_found'; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    agent := t.agent;
    has_worker := EXISTS (SELECT 1 FROM workers w WHERE t.agent = ANY (w.agents)
                             AND w.seen_at > clock_timestamp() - interval '10 s');
    SELECT * INTO m FROM inbox i WHERE i.thread_id = p_thread AND i.sender = p_principal AND i.key = p_key;
    IF FOUND THEN
        outcome := CASE WHEN m.hash = p_hash THEN 'ok' ELSE 'key_conflict' END;
        disposition := m.disposition; message := m.id; run := m.for_run; seq := m.fact_seq; duplicate := true;
        RETURN;
    END IF;
    IF p_agent <> t.agent THEN outcome := 'thread_exists'; RETURN; END IF;
    IF t.status = 'archived' THEN outcome := 'thread_archived'; RETURN; END IF;
    IF t.waiting >= p_inbox_max THEN outcome := 'inbox_full'; RETURN; END IF;
    run := t.current_run;
    SELECT * INTO r FROM runs WHERE id = t.current_run;

    IF t.state = 'idle' THEN
        disposition := 'started'; run := p_new_run; dispatch := p_new_run;
    ELSIF t.state = 'paused' THEN
        disposition := 'replied'; dispatch := run;
    ELSIF p_on_busy = 'reject' THEN
        outcome := 'thread_busy'; RETURN;
    ELSIF p_on_busy = 'steer' AND r.stop_cut IS NULL AND r.kind = 'agent' THEN
        disposition := 'steered';
    ELSE
        -- Behind a stop, behind code that holds the thread itself, or on request: for the run after this one.
        disposition := 'queued'; run := NULL; v_mode := 'next';
    END IF;

    seq := _fact(p_thread, run, 'message_accepted', jsonb_build_object('message', p_message, 'by', p_principal,
                 'content', p_content, 'disposition', disposition));
    UPDATE threads SET inbox_seq = inbox_seq + 1, waiting = waiting + 1,
           state = CASE WHEN state = 'idle' THEN 'busy' ELSE state END,
           current_run = coalesce(current_run, p_new_run)
     WHERE id = p_thread RETURNING * INTO t;
    INSERT INTO inbox (thread_id, seq, id, sender, roles, key, hash, content, disposition, for_run, fact_seq, mode,
                       interface, environment, budget)
    VALUES (p_thread, t.inbox_seq, p_message, p_principal, p_roles, p_key, p_hash, p_content, disposition, run, seq, v_mode,
            p_admission ->> 'interface', p_admission ->> 'environment', _budget(p_admission, t.agent));
    IF disposition = 'started' THEN
        PERFORM _new_run(p_thread, p_new_run, p_principal, p_roles, p_admission);
        UPDATE runs SET first_seq = seq - 1 WHERE id = p_new_run;
    ELSIF disposition = 'replied' THEN
        PERFORM _reply(p_thread, r.id, p_principal, p_content, t.inbox_seq);
    ELSIF p_on_busy = 'interrupt' THEN
        dispatch := CASE WHEN _stop(p_thread, r.id, false, p_principal, 'interrupted_by_message', p_new_run) = 'stopped'
                         THEN p_new_run END;
    END IF;
    SELECT c.holder INTO holder FROM claims c WHERE c.thread_id = p_thread;
    outcome := 'ok'; message := p_message;
END $$;

-- A message to a paused run answers its open questions with the text and denies everything else that is open with the
-- text as the reason: text never approves. It reaches the model as that, and not once more as a prompt; so it is consumed here.
CREATE OR REPLACE FUNCTION _reply(p_thread uuid, p_run uuid, p_by text, p_content text, p_seq bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE q record;
BEGIN
    FOR q IN SELECT * FROM requests WHERE run_id = p_run AND status = 'open' ORDER BY created_at, id LOOP
        PERFORM _settle(q.id, CASE q.kind WHEN 'question' THEN jsonb_build_object('kind', 'reply', 'value', p_content)
                              ELSE jsonb_build_object('kind', 'reject', 'reason', p_content) END, p_by);
    END LOOP;
    PERFORM _deliver(p_thread, p_run, ARRAY[p_seq]);
    PERFORM _again(p_thread, p_run, interval '1 s');
END $$;

-- Stop a run by its id, or whatever runs on a thread now. A late stop by id never hits the next run; one by thread
-- carries a key for the same reason.
-- outcome: not_found | forbidden | requested (the run was told) | stopped (ended here) | ended (had ended) | idle
--          | decide_first (a request of the paused run must be decided by somebody else)
CREATE OR REPLACE FUNCTION stop_v1(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_run uuid,
                                   p_key text, p_new_run uuid,
                                   OUT outcome text, OUT thread uuid, OUT run uuid, OUT status text, OUT seq bigint,
                                   OUT holder text, OUT agent text, OUT next_run uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; s stops; v_access text; v_reason text;
BEGIN
    IF p_run IS NOT NULL THEN SELECT x.thread_id INTO thread FROM runs x WHERE x.id = p_run; ELSE thread := p_thread; END IF;
    SELECT * INTO t FROM threads WHERE id = thread FOR NO KEY UPDATE;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL THEN outcome := 'not_found'; thread := NULL; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    agent := t.agent; run := coalesce(p_run, t.current_run);
    IF p_run IS NULL AND p_key IS NOT NULL THEN
        SELECT * INTO s FROM stops x WHERE x.thread_id = thread AND x.principal = p_principal AND x.key = p_key;
        IF FOUND THEN run := s.run_id; ELSE INSERT INTO stops VALUES (thread, p_principal, p_key, run); END IF;
    END IF;
    SELECT * INTO r FROM runs WHERE id = run;
    IF NOT FOUND THEN
        outcome := 'idle';
    ELSIF r.ended_at IS NOT NULL THEN
        outcome := 'ended';
    ELSIF r.status = 'paused' AND EXISTS (SELECT 1 FROM requests q WHERE q.run_id = run AND q.status = 'open'
                                        AND q.other_only AND q.kind = 'approval') THEN
        -- Somebody else has to decide: whoever asked cannot make the question go away.
        outcome := 'decide_first';
    ELSE
        v_reason := CASE WHEN _access(t.id, t.owner, p_principal, '{}') = 'write' THEN 'person' ELSE 'operator' END;
        outcome := _stop(thread, run, p_run IS NULL, p_principal, v_reason, p_new_run);
    END IF;
    SELECT x.status INTO status FROM runs x WHERE x.id = run;
    SELECT x.log_seq, nullif(x.current_run, run) INTO seq, next_run FROM threads x WHERE x.id = thread;
    next_run := CASE WHEN outcome = 'stopped' THEN next_run END;
    SELECT c.holder INTO holder FROM claims c WHERE c.thread_id = thread;
END $$;

-- Change what people see of a thread; NULL leaves a thing as it is. A thread in use is neither completed nor archived, and
-- an archived one stays so; nor is one changed that has changed since a moment, if one is named.
-- outcome: ok | not_found | forbidden | thread_changed | thread_busy | thread_archived
CREATE OR REPLACE FUNCTION update_thread_v2(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_title text,
                                            p_metadata jsonb, p_status text, p_unchanged_since timestamptz, OUT outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; v_access text;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL THEN outcome := 'not_found'; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    IF t.updated_at <> p_unchanged_since THEN outcome := 'thread_changed'; RETURN; END IF;
    IF t.status = 'archived' AND p_status <> 'archived' THEN outcome := 'thread_archived'; RETURN; END IF;
    IF t.state <> 'idle' AND p_status IN ('completed', 'archived') THEN outcome := 'thread_busy'; RETURN; END IF;
    UPDATE threads SET title = coalesce(p_title, title), metadata = coalesce(p_metadata, metadata),
           status = coalesce(p_status, status), updated_at = clock_timestamp() WHERE id = p_thread;
    outcome := 'ok';
END $$;
