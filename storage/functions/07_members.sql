-- Members: who, beside its owner, may read a thread or write to it. Only the owner and operators let people in and out.

-- Let a principal in, or change what it may do; repeating it changes nothing. What changes goes onto the log.
-- outcome: ok | not_found | forbidden | owner (who may do everything already) | full
CREATE OR REPLACE FUNCTION set_member_v1(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_member text,
                                         p_access text, p_max int,
                                         OUT outcome text, OUT access text, OUT added_by text, OUT added_at timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; v_before text;
BEGIN
    -- The lock is for the bound: of two who come at once, the second counts the first.
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    outcome := _may_share(t, p_workspace, p_principal, p_roles);
    IF outcome <> 'ok' THEN RETURN; END IF;
    IF p_member = t.owner THEN outcome := 'owner'; RETURN; END IF;
    SELECT m.access INTO v_before FROM members m WHERE m.thread_id = p_thread AND m.principal = p_member;
    IF v_before IS NULL AND (SELECT count(*) FROM members m WHERE m.thread_id = p_thread) >= p_max THEN
        outcome := 'full'; RETURN;
    END IF;
    INSERT INTO members AS m (thread_id, principal, access, added_by) VALUES (p_thread, p_member, p_access, p_principal)
    ON CONFLICT (thread_id, principal) DO UPDATE SET access = EXCLUDED.access
    RETURNING m.access, m.added_by, m.added_at INTO access, added_by, added_at;
    IF v_before IS DISTINCT FROM p_access THEN
        PERFORM _fact(p_thread, NULL, 'member_changed',
                      jsonb_build_object('member', p_member, 'access', p_access, 'before', v_before, 'by', p_principal));
    END IF;
END $$;

-- Let a principal out, whether it was in or not; on the log if it was.
-- outcome: ok | not_found | forbidden
CREATE OR REPLACE FUNCTION remove_member_v1(p_workspace text, p_principal text, p_roles text[], p_thread uuid, p_member text,
                                            OUT outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE t threads; v_before text;
BEGIN
    -- The lock is for what members do: nothing that one of them had begun is committed after they were let out.
    SELECT * INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;
    outcome := _may_share(t, p_workspace, p_principal, p_roles);
    IF outcome <> 'ok' THEN RETURN; END IF;
    DELETE FROM members m WHERE m.thread_id = p_thread AND m.principal = p_member RETURNING m.access INTO v_before;
    IF FOUND THEN
        PERFORM _fact(p_thread, NULL, 'member_changed',
                      jsonb_build_object('member', p_member, 'access', NULL, 'before', v_before, 'by', p_principal));
    END IF;
END $$;

-- Whether a principal may say who else may see a thread.
CREATE OR REPLACE FUNCTION _may_share(t threads, p_workspace text, p_principal text, p_roles text[]) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN t.workspace IS DISTINCT FROM p_workspace OR _access(t.id, t.owner, p_principal, p_roles) IS NULL THEN 'not_found'
                WHEN t.owner = p_principal OR 'operator' = ANY (p_roles) THEN 'ok'
                ELSE 'forbidden' END
$$;
