-- name: look
-- All of one thread, as the machine sees it.
SELECT json_build_object(
    'state', t.state, 'claim', t.claim_id, 'rec', t.rec_no, 'seq', t.log_seq, 'waiting', t.waiting,
    'cur', (SELECT r.run_no FROM {schema}.runs r WHERE r.id = t.current_run),
    'phase', (SELECT CASE WHEN c.expires_at = '-infinity' THEN 'disowned' WHEN c.expires_at <= clock_timestamp() THEN 'lapsed'
                          ELSE 'live' END FROM {schema}.claims c WHERE c.thread_id = t.id AND c.claim_id = t.claim_id),
    'runs', (SELECT json_agg(json_build_object('id', r.id, 'status', r.status, 'reason', r.reason, 'cut', r.stop_cut,
                        'cut_next', r.stop_cut_next, 'unacked', r.unacked, 'retried', r.retried, 'kind', r.kind,
                        'attempts', (SELECT json_agg(json_build_array(a.claim_id, a.outcome) ORDER BY a.attempt)
                                       FROM {schema}.attempts a WHERE a.run_id = r.id)) ORDER BY r.run_no)
               FROM {schema}.runs r WHERE r.thread_id = t.id),
    'tokens', (SELECT json_agg(a.claim_id ORDER BY a.fence) FROM {schema}.attempts a JOIN {schema}.runs r ON r.id = a.run_id
                WHERE r.thread_id = t.id),
    'inbox', (SELECT json_agg(json_build_object('id', i.id, 'mode', i.mode, 'state', i.state, 'run', i.run_id, 'for', i.for_run,
                        'reason', i.reason, 'disposition', i.disposition) ORDER BY i.seq)
                FROM {schema}.inbox i WHERE i.thread_id = t.id),
    'requests', (SELECT json_agg(json_build_object('id', q.id, 'run', q.run_id, 'kind', q.kind, 'status', q.status,
                        'by', q.answered_by, 'answer', q.answer, 'other_only', q.other_only,
                        'expires', CASE WHEN q.expires_at IS NULL THEN 'never' WHEN q.expires_at <= clock_timestamp() THEN 'past'
                                        ELSE 'later' END) ORDER BY q.call_id)
                   FROM {schema}.requests q WHERE q.thread_id = t.id),
    'stops', (SELECT json_agg(json_build_array(s.key, s.run_id) ORDER BY s.key) FROM {schema}.stops s WHERE s.thread_id = t.id),
    'history', t.history_chunks,
    'head', t.history_head,
    'facts', (SELECT json_agg(f.kind ORDER BY f.seq) FROM {schema}.facts f WHERE f.thread_id = t.id)
) FROM {schema}.threads t WHERE t.id = $1;

-- name: befriend
-- Let somebody else write to a thread.
INSERT INTO {schema}.members (thread_id, principal, access) VALUES ($1, $2, 'write') ON CONFLICT DO NOTHING;

-- name: run_out
-- Let a thread's claim have run out a second ago.
UPDATE {schema}.claims SET expires_at = clock_timestamp() - interval '1 s'
 WHERE thread_id = $1 AND expires_at > clock_timestamp();

-- name: fall_silent
-- Let the last renewal of a thread's live claim be a minute ago.
UPDATE {schema}.claims SET expires_at = expires_at - interval '1 min'
 WHERE thread_id = $1 AND expires_at > clock_timestamp() + interval '2 min';

-- name: come_late
-- Let the time of a thread's open requests be over.
UPDATE {schema}.requests SET expires_at = clock_timestamp() - interval '1 s'
 WHERE thread_id = $1 AND status = 'open' AND expires_at IS NOT NULL;

-- name: note_start
-- Let the database note that it is up, if it has not.
SELECT {schema}._quiet(interval '0');

-- name: up_for
-- Let the database have been up for this long.
UPDATE {schema}.database_start SET since = clock_timestamp() - $1::interval;

-- name: take_lock
-- Show that a worker lives.
SELECT * FROM {schema}.hint_v1($1);

-- name: drop_lock
-- Let a worker seem dead.
SELECT pg_advisory_unlock_shared({schema}.hint_key($1));

-- name: blocked
-- Whether a session waits for a lock.
SELECT coalesce(bool_or(a.wait_event_type = 'Lock'), false) FROM pg_stat_activity a WHERE a.pid = $1;

-- name: session
-- This session.
SELECT pg_backend_pid();
