-- How claims are kept, and how they are lost: renewals, the hint that a holder lives, and the sweep.

-- The advisory lock that shows that a worker lives. Each worker holds its own shared, in sessions of its own.
CREATE OR REPLACE FUNCTION hint_key(p_worker text) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT hashtextextended(current_schema() || ':' || p_worker, 0)
$$;

-- Take the worker's lock for as long as this session lives, and say which session that is: a pooler in between has told
-- the client of another.
CREATE OR REPLACE FUNCTION hint_v1(p_worker text, OUT taken boolean, OUT session int)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT pg_try_advisory_lock_shared(hint_key(p_worker)), pg_backend_pid()
$$;

-- The keys of this database's advisory locks, and who holds them.
CREATE OR REPLACE FUNCTION _hints() RETURNS TABLE (key bigint, session int) LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid FROM pg_locks l
     WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

-- Whether this very session holds the worker's lock.
CREATE OR REPLACE FUNCTION hinted_v1(p_worker text) RETURNS boolean LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM _hints() h WHERE h.key = hint_key(p_worker) AND h.session = pg_backend_pid())
$$;

-- Who holds hinted claims, and whether each still has its lock. The locks are read after the claims: a worker takes its
-- lock first.
CREATE OR REPLACE FUNCTION holders_v1() RETURNS TABLE (holder text, present boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE v_holders text[];
BEGIN
    SELECT array_agg(DISTINCT c.holder) INTO v_holders FROM claims c WHERE c.hinted;
    IF v_holders IS NULL THEN RETURN; END IF;
    RETURN QUERY WITH held AS MATERIALIZED (SELECT h.key FROM _hints() h)
        SELECT x.name, EXISTS (SELECT 1 FROM held WHERE held.key = hint_key(x.name)) FROM unnest(v_holders) AS x (name);
END $$;

-- Whether no lapse may be taken yet: within one ttl of a start, a recovery after a crash or a promotion of the database,
-- its claims' holders may have had nobody to renew with. Whoever first sees a change notes it.
CREATE OR REPLACE FUNCTION _quiet(p_ttl interval) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE s database_start; v_timeline bigint; v_started timestamptz;
BEGIN
    v_timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
    -- A recovery within a running server starts its statistics anew, and leaves its start time as it was.
    SELECT greatest(pg_postmaster_start_time(), b.stats_reset) INTO v_started FROM pg_stat_bgwriter b;
    SELECT * INTO s FROM database_start;
    IF NOT FOUND OR s.timeline <> v_timeline OR s.started_at <> v_started THEN
        -- The first to look at all has not seen it start, and need not wait for a ttl of its own.
        INSERT INTO database_start (timeline, started_at, since) VALUES (v_timeline, v_started, v_started)
        ON CONFLICT (one) DO UPDATE SET timeline = v_timeline, started_at = v_started, since = clock_timestamp()
         WHERE database_start.timeline <> v_timeline OR database_start.started_at <> v_started;
        SELECT * INTO s FROM database_start;
    END IF;
    RETURN clock_timestamp() < s.since + p_ttl;
END $$;

-- Whether a claim's own holder has given it up: its end is on record, and that holder is about to let go.
CREATE OR REPLACE FUNCTION _closed(p_thread uuid, p_claim uuid) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM runs r JOIN attempts a ON a.run_id = r.id
                    WHERE r.thread_id = p_thread AND a.claim_id = p_claim AND a.outcome <> 'abandoned')
$$;

-- Renew a whole process's claims in one statement, and say that the process lives and for how long its main loop has been
-- blocked. The claim's id is the only condition: a lapsed claim that nobody took may be renewed. A row that is locked
-- just now is 'busy', not lost. result: renewed | lost | busy
CREATE OR REPLACE FUNCTION renew_v2(p_worker text, p_threads uuid[], p_claims uuid[], p_ttl interval, p_blocked_s real)
RETURNS TABLE (claim_id uuid, result text, stop boolean, waiting int)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    -- A renewal that a crash of the database loses only shortens a claim.
    SELECT set_config('synchronous_commit', 'off', true);
    WITH alive AS (
        UPDATE workers w SET seen_at = clock_timestamp(), blocked_s = p_blocked_s WHERE w.id = p_worker
    ), mine AS MATERIALIZED (
        SELECT c.thread_id FROM unnest(p_threads, p_claims) AS q (thread_id, claim_id)
          JOIN claims c ON c.thread_id = q.thread_id AND c.claim_id = q.claim_id
         ORDER BY c.thread_id FOR NO KEY UPDATE OF c SKIP LOCKED
    ), done AS (
        UPDATE claims c SET expires_at = clock_timestamp() + p_ttl, ttl = p_ttl FROM mine WHERE c.thread_id = mine.thread_id
        RETURNING c.claim_id
    )
    SELECT q.claim_id,
           CASE WHEN d.claim_id IS NOT NULL THEN 'renewed'
                WHEN t.claim_id IS DISTINCT FROM q.claim_id AND NOT _closed(q.thread_id, q.claim_id) THEN 'lost'
                ELSE 'busy' END,
           r.stop_cut IS NOT NULL, coalesce(t.waiting, 0)
      FROM unnest(p_threads, p_claims) AS q (thread_id, claim_id)
      LEFT JOIN done d ON d.claim_id = q.claim_id
      LEFT JOIN threads t ON t.id = q.thread_id
      LEFT JOIN runs r ON r.id = t.current_run AND r.claim_id = q.claim_id
$$;

-- Lapsed claims, looked at without locks; lapse_v2 looks again under the thread's lock before it takes one.
CREATE OR REPLACE FUNCTION lapsed_v2(p_limit int) RETURNS SETOF uuid LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- Asked every second, so that a new start of the database is noted when it happens, not at the next lapse.
    PERFORM _quiet(interval '0');
    RETURN QUERY SELECT c.thread_id FROM claims c WHERE c.expires_at <= clock_timestamp() LIMIT p_limit;
END $$;

-- The hinted claims of a holder that seems dead; lapse_v2 looks again.
CREATE OR REPLACE FUNCTION claims_of_v1(p_holder text, p_limit int) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT c.thread_id FROM claims c WHERE c.holder = p_holder AND c.hinted LIMIT p_limit
$$;

-- Why a claim lapsed, as far as the database can tell; the caller holds the thread's lock.
CREATE OR REPLACE FUNCTION _cause(p_thread uuid) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE c claims; v_since timestamptz; v_blocked real;
BEGIN
    SELECT * INTO c FROM claims WHERE thread_id = p_thread;
    SELECT s.since INTO v_since FROM database_start s;
    SELECT w.blocked_s INTO v_blocked FROM workers w WHERE w.id = c.holder;
    RETURN CASE WHEN c.expires_at = '-infinity' THEN 'killed'
                WHEN c.expires_at - c.ttl < v_since THEN 'storage'
                WHEN v_blocked > 5 THEN 'loop blocked'
                ELSE 'lost claim' END;
END $$;

-- Take a claim that has lapsed, or that belongs to p_dead, a holder whose lock was absent for a while and still is.
-- result: NULL (not to be taken, or somebody else is at it) | what _lapse says
CREATE OR REPLACE FUNCTION lapse_v2(p_thread uuid, p_new_run uuid, p_dead text,
                                    OUT result text, OUT seq bigint, OUT agent text, OUT run uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE c claims; v_gone boolean;
BEGIN
    PERFORM 1 FROM threads WHERE id = p_thread FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    -- Waits for a renewal in progress, then sees it.
    SELECT * INTO c FROM claims WHERE thread_id = p_thread FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    IF c.expires_at > '-infinity' THEN
        IF _quiet(c.ttl) THEN RETURN; END IF;
        -- A lock that came back and went again between two looks has proven its holder alive meanwhile, which may start things
        -- for two seconds more: the age of the newest renewal shows it.
        v_gone := c.hinted AND c.holder = p_dead AND NOT EXISTS (SELECT 1 FROM _hints() h WHERE h.key = hint_key(p_dead))
                  AND c.expires_at - c.ttl <= clock_timestamp() - interval '3.5 s';
        IF c.expires_at > clock_timestamp() AND v_gone IS NOT TRUE THEN RETURN; END IF;
    END IF;
    result := _lapse(p_thread, CASE WHEN v_gone THEN 'killed' ELSE _cause(p_thread) END, p_new_run);
    SELECT x.log_seq, x.agent, x.current_run INTO seq, agent, run FROM threads x WHERE x.id = p_thread;
END $$;

-- For the one process that knows that earlier lives of itself are over: the claims of all workers of this name (an id is
-- the name and twelve digits) lapse at once, however lately the database has come up.
CREATE OR REPLACE FUNCTION disown_v1(p_name text) RETURNS bigint LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    WITH gone AS (
        UPDATE claims SET expires_at = '-infinity'
         WHERE regexp_replace(holder, '-[0-9a-f]{12}$', '') = p_name
        RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
