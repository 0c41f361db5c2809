-- What a thread is about beside its own agent: other agents, memory, and states of other systems.

-- Find a thread or make it, and add to what it is about, in order and without duplicates; what was there stays. A status
-- only if one is given. What changes goes onto the log. p_memory: [{connector, instance, scope}].
-- outcome: ok | not_found | forbidden | thread_mismatch | thread_archived | thread_busy | full
CREATE OR REPLACE FUNCTION resolve_v1(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_agent text,
                                      p_participants text[], p_memory jsonb, p_state_refs text[], p_status text, p_max int,
                                      OUT outcome text, OUT made boolean, OUT full_of text, OUT seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; v_access text; v_participants text[]; v_memory jsonb; v_states text[]; v_status text;
BEGIN
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    made := NOT FOUND;
    IF made THEN
        INSERT INTO workspaces (id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
        INSERT INTO threads (id, workspace, owner, agent) VALUES (p_thread, p_workspace, p_principal, p_agent)
        ON CONFLICT DO NOTHING;
        -- Somebody else may have made it in between.
        made := FOUND;
        SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    END IF;
    v_access := CASE WHEN t.workspace = p_workspace THEN _access(t.id, t.owner, p_principal, p_roles) END;
    IF v_access IS NULL THEN outcome := 'not_found'; RETURN; END IF;
    IF v_access = 'read' THEN outcome := 'forbidden'; RETURN; END IF;
    IF t.agent <> p_agent THEN outcome := 'thread_mismatch'; RETURN; END IF;
    IF t.status = 'archived' THEN outcome := 'thread_archived'; RETURN; END IF;
    IF t.state <> 'idle' AND p_status IN ('completed', 'archived') THEN outcome := 'thread_busy'; RETURN; END IF;
    -- Its own agent takes part in any case.
    v_participants := _unknown(array_remove(p_participants, t.agent), t.participants);
    v_memory := _unknown(p_memory, t.memory);
    v_states := _unknown(p_state_refs, t.state_refs);
    v_status := nullif(p_status, t.status);
    full_of := CASE WHEN cardinality(t.participants) + cardinality(v_participants) > p_max THEN 'participants'
                    WHEN jsonb_array_length(t.memory) + jsonb_array_length(v_memory) > p_max THEN 'memory'
                    WHEN cardinality(t.state_refs) + cardinality(v_states) > p_max THEN 'state_refs' END;
    IF full_of IS NOT NULL THEN outcome := 'full'; RETURN; END IF;
    outcome := 'ok'; seq := t.log_seq;
    IF NOT made AND cardinality(v_participants || v_states) + jsonb_array_length(v_memory) = 0 AND v_status IS NULL THEN
        RETURN;
    END IF;
    UPDATE threads SET participants = participants || v_participants, memory = memory || v_memory,
           state_refs = state_refs || v_states, status = coalesce(v_status, status) WHERE id = p_thread;
    seq := _fact(p_thread, NULL, 'thread_resolved', jsonb_build_object(
        'by', p_principal, 'made', made, 'participants', v_participants, 'memory', v_memory, 'state_refs', v_states)
        || CASE WHEN v_status IS NULL THEN '{}' ELSE jsonb_build_object('status', v_status) END);
END $$;

-- What of a list is not in another, in order and each once.
CREATE OR REPLACE FUNCTION _unknown(p_list text[], p_known text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(n.value ORDER BY n.place), '{}') FROM (
        SELECT u.value, min(u.place) AS place FROM unnest(p_list) WITH ORDINALITY AS u (value, place)
         WHERE u.value <> ALL (p_known) GROUP BY u.value) n
$$;

CREATE OR REPLACE FUNCTION _unknown(p_list jsonb, p_known jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_agg(n.value ORDER BY n.place), '[]') FROM (
        SELECT u.value, min(u.place) AS place FROM jsonb_array_elements(p_list) WITH ORDINALITY AS u (value, place)
         WHERE NOT EXISTS (SELECT 1 FROM jsonb_array_elements(p_known) AS k (value) WHERE k.value = u.value)
         GROUP BY u.value) n
$$;
