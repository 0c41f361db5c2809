-- Records of runs that code of somebody's own keeps. Such a run is 'direct': no worker takes it, and messages wait for the
-- run after it. Its status goes through the same functions as that of any other run.

-- What the protocol knows of a recorded run, as JSON values.
CREATE OR REPLACE FUNCTION _record_state(p_run uuid) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'run_id', r.id, 'thread_id', r.thread_id, 'workspace', t.workspace, 'principal', r.principal, 'agent', r.agent,
        'status', r.status, 'reason', r.reason, 'failure', r.error, 'attempt', r.attempt, 'fence', coalesce(a.fence, 0),
        'claim_id', CASE WHEN r.status = 'running' THEN r.claim_id END, 'stop_requested', r.stop_cut IS NOT NULL,
        'created_at', r.created_at, 'started_at', r.started_at, 'ended_at', r.ended_at,
        'updated_at', greatest(d.updated_at, r.ended_at), 'checkpoint_id', d.checkpoint,
        'parent_checkpoint_id', d.parent_checkpoint, 'parent_run_id', d.parent_run,
        'graph_version_ref', x.graph_version, 'deployment_ref', x.deployment,
        'request_id', (SELECT q.id FROM requests q WHERE q.run_id = r.id ORDER BY q.created_at DESC, q.id DESC LIMIT 1))
      FROM runs r JOIN run_records d ON d.run_id = r.id JOIN threads t ON t.id = r.thread_id
      LEFT JOIN thread_records x ON x.thread_id = t.id
      LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt
     WHERE r.id = p_run
$$;

-- Make a thread for a record, unless its id is taken.
CREATE OR REPLACE FUNCTION _record_thread(p_workspace text, p_principal text, p_thread uuid, p_agent text) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    INSERT INTO workspaces (id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
    INSERT INTO threads (id, workspace, owner, agent) VALUES (p_thread, p_workspace, p_principal, p_agent) ON CONFLICT DO NOTHING;
$$;

-- Whether a thread is what a record says that it is; what neither of them says is no difference.
CREATE OR REPLACE FUNCTION _same_program(t threads, p_agent text, p_version text, p_deployment text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT t.agent = p_agent AND NOT EXISTS (SELECT 1 FROM thread_records x WHERE x.thread_id = t.id
               AND (x.graph_version <> p_version OR x.deployment <> p_deployment))
$$;

-- What only grows is kept as its newest thousand.
CREATE OR REPLACE FUNCTION _newest(p_refs text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT p_refs[greatest(1, cardinality(p_refs) - 999):]
$$;

CREATE OR REPLACE FUNCTION _note_program(p_thread uuid, p_version text, p_deployment text, p_refs text[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    INSERT INTO thread_records AS x (thread_id, graph_version, deployment, checkpoint_refs)
    VALUES (p_thread, p_version, p_deployment, _unknown(p_refs, '{}'))
    ON CONFLICT (thread_id) DO UPDATE SET graph_version = coalesce(x.graph_version, p_version),
           deployment = coalesce(x.deployment, p_deployment),
           checkpoint_refs = _newest(x.checkpoint_refs || _unknown(p_refs, x.checkpoint_refs))
     WHERE (x.graph_version, x.deployment, x.checkpoint_refs) IS DISTINCT FROM
           (coalesce(x.graph_version, p_version), coalesce(x.deployment, p_deployment),
            _newest(x.checkpoint_refs || _unknown(p_refs, x.checkpoint_refs)));
$$;

-- Whether a record may be written that is there. outcome: ok | changed | ended | invalid | fenced | decide_first |
-- asks_nothing
CREATE OR REPLACE FUNCTION _may_save(r runs, p_seen uuid, p_to text, p_how jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF r.status <> p_how ->> 'expected' OR p_seen::text <> p_how ->> 'seen' THEN RETURN 'changed'; END IF;
    IF p_to <> r.status AND NOT EXISTS (SELECT 1 FROM run_transitions s WHERE s.before = r.status AND s.after = p_to) THEN
        RETURN 'invalid';
    END IF;
    IF r.ended_at IS NOT NULL THEN RETURN 'ended'; END IF;
    IF r.status = 'running' AND r.claim_id::text IS DISTINCT FROM p_how ->> 'claim' THEN RETURN 'fenced'; END IF;
    -- Only answers make a paused run go on, and who asked cannot make go away what somebody else has to decide.
    IF r.status = 'paused' AND (p_to = 'pending' OR p_to = 'stopped' AND EXISTS (
           SELECT 1 FROM requests q WHERE q.run_id = r.id AND q.status = 'open' AND q.other_only AND q.kind = 'approval')) THEN
        RETURN 'decide_first';
    END IF;
    -- A paused run waits for somebody.
    IF r.status = 'running' AND p_to = 'paused' AND p_how -> 'request' = 'null' THEN RETURN 'asks_nothing'; END IF;
    RETURN 'ok';
END $$;

-- Take the step of a recorded run's status, as its holder, and keep its claim where there is no step.
CREATE OR REPLACE FUNCTION _record_step(r runs, p_to text, p_by text, p_how jsonb, p_holder text, p_ttl interval, p_new_run uuid)
RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE v_to text := CASE WHEN r.stop_cut IS NOT NULL AND p_to <> r.status THEN 'stopped' ELSE p_to END;
BEGIN
    IF v_to = r.status THEN
        UPDATE claims SET expires_at = clock_timestamp() + p_ttl, ttl = p_ttl WHERE thread_id = r.thread_id;
    ELSIF v_to = 'running' THEN
        PERFORM _start(r.thread_id, p_holder, gen_random_uuid(), p_ttl, false);
        -- Nobody can tell what the code has done by the time its claim lapses.
        UPDATE threads SET rec_no = 1 WHERE id = r.thread_id;
        PERFORM _fact(r.thread_id, r.id, CASE r.attempt WHEN 0 THEN 'run_started' ELSE 'attempt_started' END,
                      jsonb_build_object('agent', r.agent, 'by', r.principal, 'attempt', r.attempt + 1, 'kind', 'direct'));
    ELSIF v_to = 'paused' THEN
        PERFORM pause_v1(r.thread_id, r.id, r.claim_id, jsonb_build_array(p_how -> 'request'), '[]', NULL);
    ELSIF v_to = 'pending' THEN
        PERFORM _close_attempt(r.thread_id, r.id, 'handed_over', NULL, '{}');
        PERFORM _unclaim(r.thread_id);
        PERFORM _again(r.thread_id, r.id, interval '0');
    ELSIF v_to = 'stopped' THEN
        IF _stop(r.thread_id, r.id, false, p_by, 'person', p_new_run) = 'requested' THEN
            SELECT * INTO r FROM runs WHERE id = r.id;
            PERFORM _end(r.thread_id, r.id, 'stopped', r.stop_reason, NULL, 'stopped', NULL,
                         jsonb_build_object('by', r.stop_by), p_new_run);
        END IF;
    ELSE
        PERFORM _end(r.thread_id, r.id, v_to, p_how ->> 'reason', nullif(p_how -> 'error', 'null'), v_to, NULL,
                     CASE v_to WHEN 'completed' THEN jsonb_build_object('output', p_how -> 'output') ELSE '{}' END, p_new_run);
    END IF;
END $$;

-- Write a record under its thread's lock: the record, the step of its status, the thread, and a checkpoint of it all. The
-- run is made where there is none, and its thread as well, unless only what is there may be changed.
-- p_how: {mode: create | put | change, expected, seen (a checkpoint), claim, agent, version, deployment, parent, reason,
--         error, output, request}
-- outcome: ok | not_found | no_parent | forbidden | exists | mismatch | thread_archived | thread_busy | what _may_save says
CREATE OR REPLACE FUNCTION save_record_v1(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_run uuid, p_to text,
                                          p_how jsonb, p_body json, p_checkpoint uuid, p_holder text, p_ttl interval,
                                          p_new_run uuid, p_admission jsonb,
                                          OUT outcome text, OUT thread uuid, OUT state jsonb, OUT body json, OUT seq bigint,
                                          OUT agent text, OUT next_run uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; r runs; d run_records; v_access text; v_new boolean := p_how ->> 'mode' <> 'change'; v_parent uuid;
BEGIN
    thread := coalesce((SELECT x.thread_id FROM runs x WHERE x.id = p_run), p_thread);
    SELECT * INTO t FROM threads WHERE id = thread FOR NO KEY UPDATE;
    IF t.id IS NULL AND v_new THEN
        -- What can be refused is refused before a thread is made.
        outcome := _may_record(p_workspace, p_principal, p_roles, p_to, (p_how ->> 'parent')::uuid);
        IF outcome <> 'ok' THEN RETURN; END IF;
        PERFORM _record_thread(p_workspace, p_principal, thread, p_how ->> 'agent');
        SELECT * INTO t FROM threads WHERE id = thread FOR NO KEY UPDATE;
    END IF;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    SELECT * INTO r FROM runs WHERE id = p_run;
    SELECT * INTO d FROM run_records x WHERE x.run_id = p_run AND v_access IS NOT NULL;
    IF d.run_id IS NULL AND NOT v_new THEN outcome := 'not_found'; RETURN; END IF;
    IF r.id IS NOT NULL AND (d.run_id IS NULL OR p_how ->> 'mode' = 'create') THEN outcome := 'exists'; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    IF v_access IS NULL OR t.id <> p_thread OR NOT _same_program(t, p_how ->> 'agent', p_how ->> 'version', p_how ->> 'deployment') THEN
        outcome := 'mismatch'; RETURN;
    END IF;
    IF r.id IS NULL THEN
        outcome := _may_record(p_workspace, p_principal, p_roles, p_to, (p_how ->> 'parent')::uuid);
        IF outcome <> 'ok' THEN RETURN; END IF;
        IF t.status = 'archived' THEN outcome := 'thread_archived'; RETURN; END IF;
        PERFORM _take_over(t.id, p_new_run);
        SELECT * INTO t FROM threads WHERE id = thread;
        IF t.state <> 'idle' THEN outcome := 'thread_busy'; next_run := t.current_run; seq := t.log_seq; agent := t.agent; RETURN; END IF;
        PERFORM _new_run(t.id, p_run, p_principal, p_roles, p_admission);
        UPDATE runs SET kind = 'direct' WHERE id = p_run RETURNING * INTO r;
        v_parent := (p_how ->> 'parent')::uuid;
    ELSE
        state := _record_state(p_run); body := d.body;
        outcome := _may_save(r, d.checkpoint, p_to, p_how);
        IF outcome <> 'ok' THEN RETURN; END IF;
    END IF;
    PERFORM _note_program(t.id, p_how ->> 'version', p_how ->> 'deployment', '{}');
    d.parent_checkpoint := (SELECT c.id FROM record_checkpoints c WHERE c.thread_id = t.id ORDER BY c.n DESC LIMIT 1);
    INSERT INTO run_records AS x (run_id, parent_run, checkpoint, parent_checkpoint, body)
    VALUES (p_run, v_parent, p_checkpoint, d.parent_checkpoint, p_body)
    ON CONFLICT (run_id) DO UPDATE SET checkpoint = p_checkpoint, parent_checkpoint = d.parent_checkpoint, body = p_body,
           updated_at = clock_timestamp();
    -- Before the step: nothing of a run is on the log behind its end.
    PERFORM _fact(t.id, p_run, 'checkpoint_written', jsonb_build_object('checkpoint', p_checkpoint, 'by', p_principal));
    PERFORM _record_step(r, p_to, p_principal, p_how, p_holder, p_ttl, p_new_run);
    state := _record_state(p_run); body := p_body;
    INSERT INTO record_checkpoints (id, thread_id, n, run_id, state, body)
    VALUES (p_checkpoint, t.id, coalesce((SELECT max(c.n) FROM record_checkpoints c WHERE c.thread_id = t.id), 0) + 1, p_run, state, p_body);
    SELECT x.log_seq, x.agent, nullif(x.current_run, p_run) INTO seq, agent, next_run FROM threads x WHERE x.id = t.id;
    outcome := 'ok';
END $$;

-- Whether a run may be recorded that is not there: it is as if it had been pending. Its parent is one that may be seen.
-- outcome: ok | invalid | no_parent
CREATE OR REPLACE FUNCTION _may_record(p_workspace text, p_principal text, p_roles text[], p_to text, p_parent uuid) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN p_to <> 'pending' AND NOT EXISTS (SELECT 1 FROM run_transitions s WHERE s.before = 'pending' AND s.after = p_to)
                THEN 'invalid'
                WHEN p_parent IS NOT NULL AND NOT EXISTS (
                     SELECT 1 FROM runs r JOIN threads t ON t.id = r.thread_id WHERE r.id = p_parent
                        AND t.workspace = p_workspace AND _access(t.id, t.owner, p_principal, p_roles) IS NOT NULL)
                THEN 'no_parent'
                ELSE 'ok' END
$$;

-- A thread as it groups runs, as JSON values; of what only grows, the newest thousand.
CREATE OR REPLACE FUNCTION _thread_record(p_thread uuid) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'thread_id', t.id, 'workspace', t.workspace, 'agent', t.agent, 'status', t.status,
        'graph_version_ref', x.graph_version, 'deployment_ref', x.deployment, 'participating_agent_refs', to_jsonb(array_prepend(t.agent, t.participants)),
        'state_snapshot_refs', to_jsonb(t.state_refs), 'memory_bindings', t.memory,
        'checkpoint_refs', to_jsonb(_newest(coalesce(x.checkpoint_refs, '{}') || ARRAY(
            SELECT c.id::text FROM (
                SELECT k.id, k.n FROM record_checkpoints k WHERE k.thread_id = t.id ORDER BY k.n DESC LIMIT 1000) c ORDER BY c.n))),
        'run_ids', (SELECT coalesce(jsonb_agg(r.id ORDER BY r.run_no), '[]') FROM (
                SELECT k.id, k.run_no FROM runs k WHERE k.thread_id = t.id ORDER BY k.run_no DESC LIMIT 1000) r),
        'active_run_id', t.current_run,
        'last_run_id', (SELECT r.id FROM runs r WHERE r.thread_id = t.id AND r.run_no = t.run_no),
        'created_at', t.created_at, 'updated_at', t.updated_at)
      FROM threads t LEFT JOIN thread_records x ON x.thread_id = t.id WHERE t.id = p_thread
$$;

-- Find or make a thread, and add to it what is asked. p_ask: {agent, version, deployment, run, participants, states,
-- checkpoints, memory, status}; what is NULL or empty asks for nothing, and so may be asked of any thread that may be read.
-- outcome: ok | mismatch | full | what resolve_v1 says
CREATE OR REPLACE FUNCTION resolve_thread_v1(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_ask jsonb,
                                             p_max int, OUT outcome text, OUT thread jsonb, OUT full_of text, OUT seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; s record; v_access text; v_asks boolean; v_checkpoints text[] := _texts(p_ask -> 'checkpoints');
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    IF t.id IS NULL AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = (p_ask ->> 'run')::uuid) THEN
        PERFORM _record_thread(p_workspace, p_principal, p_thread, p_ask ->> 'agent');
        SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    END IF;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL OR NOT _same_program(t, p_ask ->> 'agent', p_ask ->> 'version', p_ask ->> 'deployment')
       OR EXISTS (SELECT 1 FROM runs r WHERE r.id = (p_ask ->> 'run')::uuid AND r.thread_id <> p_thread) THEN
        outcome := 'mismatch'; RETURN;
    END IF;
    v_asks := p_ask ->> 'status' <> t.status OR EXISTS (
        SELECT 1 FROM unnest(ARRAY['participants', 'states', 'checkpoints', 'memory']) AS k WHERE p_ask -> k <> '[]');
    IF v_asks THEN
        IF cardinality(v_checkpoints) > p_max THEN outcome := 'full'; full_of := 'checkpoint_refs'; RETURN; END IF;
        s := resolve_v1(p_workspace, p_principal, p_roles, p_thread, p_ask ->> 'agent', _texts(p_ask -> 'participants'),
                        p_ask -> 'memory', _texts(p_ask -> 'states'), p_ask ->> 'status', p_max);
        full_of := s.full_of; seq := s.seq;
        IF s.outcome <> 'ok' THEN outcome := s.outcome; RETURN; END IF;
    END IF;
    IF v_access = 'write' AND t.status <> 'archived' THEN
        PERFORM _note_program(p_thread, p_ask ->> 'version', p_ask ->> 'deployment', v_checkpoints);
    END IF;
    outcome := 'ok'; thread := _thread_record(p_thread);
END $$;

CREATE OR REPLACE FUNCTION _texts(p_list jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT jsonb_array_elements_text(p_list))
$$;
