-- Budgets and grants: what may be spent is looked at, and set aside, in the transaction before the act.
--
-- Order of locks: a thread's row first where one is needed, then a model's call, then rows of spend by scope: run, thread,
-- principal, workspace; then grants. So settling, which needs no thread, never waits in a circle.

-- The rows of spend that a run's acts are charged to. p_limits: [{scope, every?, ...}] by scope in the order above, and within
-- it in one order of `every`.
CREATE OR REPLACE FUNCTION _charged(p_thread uuid, p_run uuid, p_limits jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_agg(jsonb_build_object('workspace', t.workspace, 'scope', l.x ->> 'scope',
        'id', CASE l.x ->> 'scope' WHEN 'run' THEN r.id::text WHEN 'thread' THEN t.id::text WHEN 'principal' THEN r.principal
                                   ELSE t.workspace END,
        'every', coalesce(l.x ->> 'every', 'ever'),
        'since', CASE WHEN l.x ->> 'every' IS NULL THEN '-infinity'
                      ELSE date_trunc(l.x ->> 'every', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' END) ORDER BY l.o)
      FROM threads t JOIN runs r ON r.id = p_run, jsonb_array_elements(p_limits) WITH ORDINALITY AS l (x, o)
     WHERE t.id = p_thread
$$;

-- Add to one row of spend, which is then locked, and return it.
CREATE OR REPLACE FUNCTION _charge(p_row jsonb, p_model_calls int, p_tool_calls int, p_tokens bigint, p_money numeric,
                                   p_seconds float8, p_held_tokens bigint, p_held_money numeric) RETURNS spend
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    INSERT INTO spend AS s (workspace, scope, id, every, since, model_calls, tool_calls, tokens, money, seconds, held_tokens, held_money)
    VALUES (p_row ->> 'workspace', p_row ->> 'scope', p_row ->> 'id', p_row ->> 'every', (p_row ->> 'since')::timestamptz,
            p_model_calls, p_tool_calls, p_tokens, p_money, p_seconds, p_held_tokens, p_held_money)
    ON CONFLICT (workspace, scope, id, every, since) DO UPDATE
       SET model_calls = s.model_calls + p_model_calls, tool_calls = s.tool_calls + p_tool_calls, tokens = s.tokens + p_tokens,
           money = s.money + p_money, seconds = s.seconds + p_seconds, held_tokens = s.held_tokens + p_held_tokens,
           held_money = s.held_money + p_held_money
    RETURNING s.*
$$;

-- What one limit says of a row of spend, for a call of a model or of a tool. NULL: no such limit.
-- matched: it is reached. held: it would be, if the calls under way came to what is set aside for them.
CREATE OR REPLACE FUNCTION _limit(p_row jsonb, p_limit text, p_max numeric, p_spent numeric, p_held numeric, p_counts boolean)
RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_max IS NOT NULL THEN jsonb_build_object(
        'scope', p_row ->> 'scope', 'id', p_row ->> 'id', 'every', p_row ->> 'every', 'limit', p_limit, 'max', p_max, 'spent', p_spent,
        'matched', p_counts AND p_spent >= p_max, 'held', p_counts AND p_spent < p_max AND p_spent + p_held >= p_max) END
$$;

-- All limits of one scope, as they stand.
CREATE OR REPLACE FUNCTION _limits(p_row jsonb, p_limits jsonb, s spend, p_kind text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(x.l) FILTER (WHERE x.l IS NOT NULL), '[]') FROM (VALUES
        (_limit(p_row, 'model_calls', (p_limits ->> 'model_calls')::numeric, s.model_calls, 0, p_kind = 'model')),
        (_limit(p_row, 'tool_calls', (p_limits ->> 'tool_calls')::numeric, s.tool_calls, 0, p_kind = 'tool')),
        (_limit(p_row, 'tokens', (p_limits ->> 'tokens')::numeric, s.tokens, s.held_tokens, true)),
        (_limit(p_row, 'money', (p_limits ->> 'money')::numeric, s.money, s.held_money, true)),
        (_limit(p_row, 'seconds', (p_limits ->> 'seconds')::numeric, round(s.seconds::numeric, 3), 0, true))) AS x (l)
$$;

-- The order in which rows of spend are locked, the same for everybody.
CREATE OR REPLACE FUNCTION _rank(p_row jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT array_position(ARRAY['run', 'thread', 'principal', 'workspace'], p_row ->> 'scope') || ' ' || (p_row ->> 'every') || ' '
           || (p_row ->> 'since')
$$;

-- How the limits of a run stand, without charging anything. p_charged: the rows that belong to them.
CREATE OR REPLACE FUNCTION _standing_limits(p_charged jsonb, p_limits jsonb, p_kind text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(l.x ORDER BY c.o), '[]')
      FROM jsonb_array_elements(p_charged) WITH ORDINALITY AS c (row, o)
      JOIN spend s ON s.workspace = c.row ->> 'workspace' AND s.scope = c.row ->> 'scope' AND s.id = c.row ->> 'id'
                  AND s.every = c.row ->> 'every' AND s.since = (c.row ->> 'since')::timestamptz,
           jsonb_array_elements(_limits(c.row, p_limits -> (c.o - 1)::int, s, p_kind)) AS l (x)
$$;

-- Count the time that an open attempt has worked since that was last done, where it has been counted before; what it is
-- charged to from now on may be other rows, since days end. Locks all of them in order, and makes those that are not there.
CREATE OR REPLACE FUNCTION _count_time(a attempts, p_charged jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE v_at timestamptz := clock_timestamp(); v_elapsed float8; v_old jsonb := coalesce(a.charged, p_charged); v_row jsonb;
BEGIN
    v_elapsed := greatest(extract(epoch FROM v_at - coalesce(a.counted_at, a.started_at)), 0);
    FOR v_row IN SELECT DISTINCT ON (_rank(x.value)) x.value FROM jsonb_array_elements(v_old || p_charged) AS x ORDER BY _rank(x.value) LOOP
        PERFORM _charge(v_row, 0, 0, 0, 0, CASE WHEN v_old @> jsonb_build_array(v_row) THEN v_elapsed ELSE 0 END, 0, 0);
    END LOOP;
    UPDATE attempts SET counted_at = v_at, charged = p_charged WHERE run_id = a.run_id AND attempt = a.attempt;
END $$;

-- Look whether a run may do what it is about to, and set aside what that may come to. The caller holds the thread's lock.
-- p_spend: {kind: model | tool | start, limits: [{scope, every?, model_calls?, tool_calls?, tokens?, money?, seconds?}],
--           id, agent, depth, model, tokens, money (of a model's call), grant (the capability that a tool's call needs)}
-- outcome: ok | exhausted | wait (only what calls under way hold is in the way) | no_grant. A tool's call waits for nobody,
-- and a start is only counted. limits: each limit as it stood.
CREATE OR REPLACE FUNCTION _spend(p_thread uuid, p_run uuid, p_spend jsonb, OUT outcome text, OUT limits jsonb)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE a attempts; v_charged jsonb; v_row jsonb; v_kind text := p_spend ->> 'kind'; v_grant jsonb;
BEGIN
    limits := '[]'; outcome := 'ok';
    SELECT * INTO a FROM attempts WHERE run_id = p_run AND closed_at IS NULL;
    v_charged := _charged(p_thread, p_run, p_spend -> 'limits');
    IF v_charged IS NOT NULL THEN
        PERFORM _count_time(a, v_charged);
        limits := _standing_limits(v_charged, p_spend -> 'limits', v_kind);
    END IF;
    IF v_kind = 'start' THEN RETURN; END IF;
    IF limits @> '[{"matched": true}]' THEN outcome := 'exhausted'; RETURN; END IF;
    IF limits @> '[{"held": true}]' AND v_kind = 'model' THEN outcome := 'wait'; RETURN; END IF;
    IF p_spend ? 'grant' THEN
        v_grant := _use_grant(p_thread, p_run, p_spend ->> 'grant');
        IF v_grant IS NULL THEN outcome := 'no_grant'; RETURN; END IF;
        PERFORM _fact(p_thread, p_run, 'grant_used', v_grant || jsonb_build_object('call_id', p_spend -> 'call_id'));
    END IF;
    FOR v_row IN SELECT x.value FROM jsonb_array_elements(v_charged) AS x LOOP
        PERFORM _charge(v_row, (v_kind = 'model')::int, (v_kind = 'tool')::int, 0, 0, 0,
                        coalesce((p_spend ->> 'tokens')::bigint, 0), coalesce((p_spend ->> 'money')::numeric, 0));
    END LOOP;
    IF v_kind = 'model' THEN
        INSERT INTO model_calls (id, run_id, claim_id, agent, depth, model, charged, tokens, money)
        VALUES ((p_spend ->> 'id')::uuid, p_run, a.claim_id, p_spend ->> 'agent', (p_spend ->> 'depth')::int, p_spend ->> 'model',
                v_charged, (p_spend ->> 'tokens')::bigint, (p_spend ->> 'money')::numeric);
    END IF;
END $$;

-- Say what a model's call came to. It needs no claim: what a worker has spent that is not the run's any more was real as
-- well. NULL where it is called a second time.
-- p_cost: NULL if nobody knows the price; nothing is charged then.
CREATE OR REPLACE FUNCTION settle_v1(p_id uuid, p_input bigint, p_output bigint, p_cost numeric) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE m model_calls; v_row jsonb;
BEGIN
    SELECT * INTO m FROM model_calls WHERE id = p_id FOR UPDATE;
    IF m.state IS NULL OR m.state = 'settled' THEN RETURN NULL; END IF;
    FOR v_row IN SELECT x.value FROM jsonb_array_elements(m.charged) AS x ORDER BY _rank(x.value) LOOP
        IF m.state = 'open' THEN
            PERFORM _charge(v_row, 0, 0, p_input + p_output, coalesce(p_cost, 0), 0, -m.tokens, -m.money);
        ELSE
            PERFORM _charge(v_row, 0, 0, p_input + p_output - m.tokens, coalesce(p_cost, 0) - m.money, 0, 0, 0);
        END IF;
    END LOOP;
    UPDATE model_calls SET state = 'settled', input_tokens = p_input, output_tokens = p_output, cost = p_cost,
           settled_at = clock_timestamp() WHERE id = p_id;
    RETURN true;
END $$;

-- A run's attempt is about to close: its time is counted, and what is set aside for calls whose end nobody has told counts
-- as spent, until somebody tells. Time counts up to when its holder last showed that it lives. The caller holds the
-- thread's lock.
CREATE OR REPLACE FUNCTION _settle_attempt(p_run uuid) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE a attempts; c claims; v_until timestamptz := clock_timestamp(); x record;
BEGIN
    SELECT * INTO a FROM attempts WHERE run_id = p_run AND closed_at IS NULL AND charged IS NOT NULL;
    IF NOT FOUND THEN RETURN; END IF;
    SELECT * INTO c FROM claims WHERE claim_id = a.claim_id AND expires_at <= v_until;
    IF FOUND THEN v_until := CASE WHEN isfinite(c.expires_at) THEN c.expires_at - c.ttl ELSE a.counted_at END; END IF;
    PERFORM 1 FROM model_calls WHERE claim_id = a.claim_id AND state = 'open' ORDER BY id FOR UPDATE;
    FOR x IN SELECT y.row, sum(y.tokens)::bigint AS tokens, sum(y.money) AS money, sum(y.seconds) AS seconds FROM (
                 SELECT r.value AS row, m.tokens, m.money, 0::float8 AS seconds FROM model_calls m, jsonb_array_elements(m.charged) AS r
                  WHERE m.claim_id = a.claim_id AND m.state = 'open'
                  UNION ALL
                 SELECT r.value, 0, 0, greatest(extract(epoch FROM v_until - a.counted_at), 0) FROM jsonb_array_elements(a.charged) AS r) y
              GROUP BY y.row ORDER BY _rank(y.row) LOOP
        PERFORM _charge(x.row, 0, 0, x.tokens, x.money, x.seconds, -x.tokens, -x.money);
    END LOOP;
    UPDATE model_calls SET state = 'lost' WHERE claim_id = a.claim_id AND state = 'open';
END $$;

-- Take one use of a capability, for who the run acts for and where: the grant that ends first. NULL: there is none left.
CREATE OR REPLACE FUNCTION _use_grant(p_thread uuid, p_run uuid, p_capability text) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE v_id uuid; g grants;
BEGIN
    FOR v_id IN SELECT x.id FROM grants x JOIN threads t ON t.id = p_thread JOIN runs r ON r.id = p_run
                 WHERE x.workspace = t.workspace AND x.capability = p_capability AND x.used < x.uses AND x.revoked_at IS NULL
                   AND (x.expires_at IS NULL OR x.expires_at > clock_timestamp())
                   AND (x.principal IS NULL OR x.principal = r.principal) AND (x.thread_id IS NULL OR x.thread_id = t.id)
                 ORDER BY x.expires_at, x.id LOOP
        -- Whoever holds the row may take the last use; this waits for them and looks again.
        UPDATE grants SET used = used + 1
         WHERE id = v_id AND used < uses AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
        RETURNING * INTO g;
        IF FOUND THEN
            RETURN jsonb_build_object('grant', g.id, 'capability', g.capability, 'use', g.used, 'of', g.uses, 'granted_by', g.granted_by);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Each place in which a run's budget counts, as it stands; empty for a run without one.
CREATE OR REPLACE FUNCTION _charged_of(p_run uuid) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('scope', s.scope, 'id', s.id, 'every', s.every,
               'since', CASE WHEN isfinite(s.since) THEN s.since END, 'model_calls', s.model_calls, 'tool_calls', s.tool_calls,
               'tokens', s.tokens, 'money', s.money::text, 'seconds', round(s.seconds::numeric, 3),
               'held_tokens', s.held_tokens, 'held_money', s.held_money::text) ORDER BY x.o), '[]')
      FROM (SELECT a.charged FROM attempts a WHERE a.run_id = p_run AND a.charged IS NOT NULL ORDER BY a.attempt DESC LIMIT 1) a,
           jsonb_array_elements(a.charged) WITH ORDINALITY AS x (row, o)
      JOIN spend s ON s.workspace = x.row ->> 'workspace' AND s.scope = x.row ->> 'scope' AND s.id = x.row ->> 'id'
                  AND s.every = x.row ->> 'every' AND s.since = (x.row ->> 'since')::timestamptz
$$;

-- Why things were allowed in a run or not: the newest facts that say so, oldest first.
CREATE OR REPLACE FUNCTION _decisions(p_run uuid, p_limit int) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(f.data || jsonb_build_object('fact', f.kind, 'seq', f.seq, 'at', f.at) ORDER BY f.seq), '[]')
      FROM (SELECT x.* FROM facts x WHERE x.run_id = p_run
               AND x.kind IN ('policy_evaluated', 'budget_exhausted', 'grant_used', 'request_answered')
             ORDER BY x.seq DESC LIMIT p_limit) f
$$;
