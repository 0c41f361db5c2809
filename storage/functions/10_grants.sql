-- Grants, as people make, see and revoke them. Each use is taken by _use_grant.

-- What a grant is good for now. One that was revoked says so, whatever else is true of it.
CREATE OR REPLACE FUNCTION _grant_status(g grants) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN g.revoked_at IS NOT NULL THEN 'revoked' WHEN g.used >= g.uses THEN 'used_up'
                WHEN g.expires_at <= clock_timestamp() THEN 'expired' ELSE 'usable' END
$$;

-- Whether a principal may see a grant: one that is for them or for whoever, one for a thread that they may see, and to
-- operators any of their workspace.
CREATE OR REPLACE FUNCTION _sees_grant(g grants, p_workspace text, p_principal text, p_roles text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT g.workspace = p_workspace AND ('operator' = ANY (p_roles) OR g.principal = p_principal
        OR (g.principal IS NULL AND g.thread_id IS NULL)
        OR EXISTS (SELECT 1 FROM threads t WHERE t.id = g.thread_id AND _access(t.id, t.owner, p_principal, p_roles) IS NOT NULL))
$$;

-- How many usable grants a workspace has. The lock is for the bound: of two who come at once, the second counts what the
-- first has made. Keys of other tables may go on pointing to the row.
CREATE OR REPLACE FUNCTION _usable_grants(p_workspace text) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM 1 FROM workspaces WHERE id = p_workspace FOR NO KEY UPDATE;
    RETURN (SELECT count(*) FROM grants g WHERE g.workspace = p_workspace AND g.used < g.uses AND g.revoked_at IS NULL
               AND (g.expires_at IS NULL OR g.expires_at > clock_timestamp()));
END $$;

-- Make a grant, or return the one that the same call has made before. p_lasts: in seconds.
-- outcome: ok | key_conflict | not_found (the thread) | full
CREATE OR REPLACE FUNCTION create_grant_v1(p_workspace text, p_by text, p_key text, p_new_grant uuid, p_capability text,
                                           p_principal text, p_thread uuid, p_uses int, p_reason text, p_lasts float8, p_max int,
                                           OUT outcome text, OUT id uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE g grants; v_usable bigint; v_at timestamptz;
BEGIN
    INSERT INTO workspaces (id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
    v_usable := _usable_grants(p_workspace);
    SELECT * INTO g FROM grants x WHERE x.workspace = p_workspace AND x.granted_by = p_by AND x.key = p_key;
    IF FOUND THEN
        id := g.id;
        outcome := CASE WHEN (g.capability, g.principal, g.thread_id, g.uses, g.reason, g.expires_at) IS NOT DISTINCT FROM
                             (p_capability, p_principal, p_thread, p_uses, p_reason, g.created_at + make_interval(secs => p_lasts))
                        THEN 'ok' ELSE 'key_conflict' END;
        RETURN;
    END IF;
    IF p_thread IS NOT NULL AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = p_thread AND t.workspace = p_workspace) THEN
        outcome := 'not_found'; RETURN;
    END IF;
    IF v_usable >= p_max THEN outcome := 'full'; RETURN; END IF;
    v_at := clock_timestamp();
    INSERT INTO grants (id, workspace, capability, principal, thread_id, uses, granted_by, reason, expires_at, key, created_at)
    VALUES (p_new_grant, p_workspace, p_capability, p_principal, p_thread, p_uses, p_by, p_reason,
            v_at + make_interval(secs => p_lasts), p_key, v_at);
    outcome := 'ok'; id := p_new_grant;
END $$;
