-- The tables. Every decision about a thread is made by one transaction that first locks the thread's row
-- (see functions/); all times are the database's; what must never happen is a constraint.

CREATE TABLE workspaces (
    id         text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE threads (
    id             uuid PRIMARY KEY,
    workspace      text   NOT NULL REFERENCES workspaces,
    owner          text   NOT NULL,
    agent          text   NOT NULL,
    title          text,
    metadata       jsonb  NOT NULL DEFAULT '{}',
    status         text   NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'completed', 'archived')),
    state          text   NOT NULL DEFAULT 'idle' CHECK (state IN ('idle', 'busy', 'paused')),
    current_run    uuid,
    run_no         bigint NOT NULL DEFAULT 0,
    fence          bigint NOT NULL DEFAULT 0,      -- the largest fence ever given out; only grows
    claim_id       uuid,                           -- the claim that may write now; compared for equality
    rec_no         bigint NOT NULL DEFAULT 0,      -- records taken under claim_id; makes a repeated record harmless
    log_seq        bigint NOT NULL DEFAULT 0,      -- facts so far
    history_chunks bigint NOT NULL DEFAULT 0,
    inbox_seq      bigint NOT NULL DEFAULT 0,      -- messages accepted so far
    waiting        int    NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((state = 'idle') = (current_run IS NULL)),
    -- No message is ever left behind: a thread may rest only when nothing waits in its inbox.
    CHECK (state <> 'idle' OR waiting = 0)
) WITH (fillfactor = 70);
CREATE INDEX threads_by_owner ON threads (workspace, owner, id);
CREATE INDEX threads_by_workspace ON threads (workspace, id);

CREATE TABLE members (
    thread_id uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    principal text NOT NULL,
    access    text NOT NULL CHECK (access IN ('read', 'write')),
    PRIMARY KEY (thread_id, principal)
);

-- Which status of a run may follow which; a trigger below refuses every other step.
CREATE TABLE run_transitions (
    before text NOT NULL,
    after  text NOT NULL,
    PRIMARY KEY (before, after)
);
INSERT INTO run_transitions (before, after) VALUES
    ('pending', 'running'), ('pending', 'stopped'), ('pending', 'failed'),
    ('running', 'pending'), ('running', 'paused'), ('running', 'completed'), ('running', 'stopped'), ('running', 'failed'),
    ('paused', 'pending'), ('paused', 'stopped');

CREATE TABLE runs (
    id            uuid PRIMARY KEY,
    thread_id     uuid   NOT NULL REFERENCES threads ON DELETE CASCADE,
    run_no        bigint NOT NULL,
    agent         text   NOT NULL,
    principal     text   NOT NULL,                 -- for whom the run acts: who sent the message that starts it
    roles         text[] NOT NULL DEFAULT '{}',
    status        text   NOT NULL DEFAULT 'pending'
                  CHECK (status IN ('pending', 'running', 'paused', 'completed', 'stopped', 'failed')),
    reason        text CHECK (reason IN ('error', 'abandoned', 'poison', 'timeout', 'budget_exhausted', 'history_unsafe',
                                         'person', 'operator', 'interrupted_by_message')),
    error         jsonb,
    attempt       int    NOT NULL DEFAULT 0,       -- starts so far
    unacked       int    NOT NULL DEFAULT 0,       -- starts in a row that no record followed; bounds restarts
    first_seq     bigint NOT NULL,                 -- the log's position when the run was made: its facts come after
    fence_before  bigint NOT NULL,                 -- the thread's fence then: its live frames have larger ones
    claim_id      uuid,                            -- of the latest start; stays after the end (repeated calls)
    start_key     uuid,                            -- the worker's own key of that start (repeated calls)
    stop_cut      bigint,                          -- threads.inbox_seq at the first stop; no stop: NULL
    stop_cut_next bigint,                          -- the same for messages of mode 'next', set by a thread stop
    stop_by       text,
    stop_reason   text,
    take_at       timestamptz NOT NULL,            -- from when on a pending run is taken without a nudge
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at    timestamptz,
    ended_at      timestamptz,
    UNIQUE (thread_id, run_no),
    CHECK ((status IN ('failed', 'stopped')) = (reason IS NOT NULL)),
    CHECK ((status IN ('completed', 'stopped', 'failed')) = (ended_at IS NOT NULL))
);
-- At most one run of a thread is pending, running or paused.
CREATE UNIQUE INDEX runs_one_active ON runs (thread_id) WHERE status IN ('pending', 'running', 'paused');
CREATE INDEX runs_pending ON runs (take_at) WHERE status = 'pending';

ALTER TABLE threads ADD FOREIGN KEY (current_run) REFERENCES runs DEFERRABLE INITIALLY DEFERRED;

CREATE FUNCTION run_step() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM run_transitions s WHERE s.before = OLD.status AND s.after = NEW.status) THEN
        RAISE EXCEPTION 'invalid run transition: % -> %', OLD.status, NEW.status;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER run_step BEFORE UPDATE OF status ON runs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION run_step();

-- One row per stretch of a run under one claim; a closed attempt never changes again.
CREATE TABLE attempts (
    run_id     uuid   NOT NULL REFERENCES runs ON DELETE CASCADE,
    attempt    int    NOT NULL,
    fence      bigint NOT NULL,
    claim_id   uuid   NOT NULL,
    worker     text   NOT NULL,
    outcome    text CHECK (outcome IN ('interrupted', 'completed', 'stopped', 'failed', 'abandoned', 'handed_over')),
    cause      text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at  timestamptz,
    PRIMARY KEY (run_id, attempt),
    CHECK ((outcome IS NULL) = (closed_at IS NULL))
);
CREATE FUNCTION attempt_is_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'attempt % of run % is closed', OLD.attempt, OLD.run_id;
END $$;
CREATE TRIGGER attempt_is_closed BEFORE UPDATE ON attempts
    FOR EACH ROW WHEN (OLD.closed_at IS NOT NULL) EXECUTE FUNCTION attempt_is_closed();

-- A row stands exactly while a run is running, so the table stays as small as the number of running runs.
-- No index on expires_at: renewals stay in-page updates, and the sweep reads the whole small table.
CREATE TABLE claims (
    thread_id   uuid   PRIMARY KEY REFERENCES threads ON DELETE CASCADE,
    claim_id    uuid   NOT NULL,
    fence       bigint NOT NULL,
    holder      text   NOT NULL,                   -- the worker; to find it with a nudge, never checked by a write
    acquired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The log of facts: gap-free per thread, written only under the thread's lock.
CREATE TABLE facts (
    thread_id uuid   NOT NULL REFERENCES threads ON DELETE CASCADE,
    seq       bigint NOT NULL,
    run_id    uuid,
    fence     bigint NOT NULL,
    kind      text   NOT NULL,
    data      jsonb  NOT NULL DEFAULT '{}',
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thread_id, seq)
);
-- At most one end per run.
CREATE UNIQUE INDEX facts_one_end ON facts (run_id) WHERE kind = 'run_ended';
CREATE INDEX facts_by_run ON facts (run_id, seq);

CREATE TABLE inbox (
    thread_id   uuid   NOT NULL REFERENCES threads ON DELETE CASCADE,
    seq         bigint NOT NULL,
    id          uuid   NOT NULL UNIQUE,
    sender      text   NOT NULL,
    roles       text[] NOT NULL DEFAULT '{}',
    key         text   NOT NULL,
    hash        bytea  NOT NULL,
    content     text   NOT NULL,
    disposition text   NOT NULL CHECK (disposition IN ('started', 'steered', 'replied', 'queued')),
    for_run     uuid,                              -- the run the sender was told of
    fact_seq    bigint NOT NULL,                   -- its message_accepted on the log
    mode        text   NOT NULL CHECK (mode IN ('now', 'next')),
    state       text   NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'returned')),
    run_id      uuid,                              -- the run that consumed it
    reason      text,                              -- why it was returned
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at  timestamptz,
    PRIMARY KEY (thread_id, seq),
    UNIQUE (thread_id, sender, key),
    CHECK ((state = 'waiting') = (settled_at IS NULL)),
    CHECK ((state = 'delivered') = (run_id IS NOT NULL)),
    CHECK ((state = 'returned') = (reason IS NOT NULL))
);
CREATE INDEX inbox_waiting ON inbox (thread_id, seq) WHERE state = 'waiting';

-- What the model was shown and said, as whole messages, raw. json, not jsonb: the bytes stay as they were written.
CREATE TABLE history (
    thread_id uuid   NOT NULL REFERENCES threads ON DELETE CASCADE,
    chunk     bigint NOT NULL,
    run_id    uuid   NOT NULL,
    fence     bigint NOT NULL,
    messages  json   NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thread_id, chunk)
);

CREATE TABLE requests (
    id           uuid PRIMARY KEY,
    thread_id    uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    run_id       uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
    attempt      int  NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('question', 'approval', 'external')),
    call_id      text NOT NULL,
    tool         text NOT NULL,
    args         jsonb NOT NULL,
    args_hash    bytea NOT NULL,
    requested_by text NOT NULL,
    other_only   boolean NOT NULL DEFAULT false,   -- separation of duties: the requester may not approve
    approvers    text[],
    expires_at   timestamptz,
    status       text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'answered', 'denied', 'cancelled')),
    answer       jsonb,
    answered_by  text,
    answered_at  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (NOT (other_only AND kind = 'approval' AND status = 'answered' AND answered_by = requested_by))
);
CREATE INDEX requests_open ON requests (run_id) WHERE status = 'open';

-- Stops of a thread by key: a repeated one never hits a later run.
CREATE TABLE stops (
    thread_id uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    principal text NOT NULL,
    key       text NOT NULL,
    run_id    uuid,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thread_id, principal, key)
);

-- Worker processes, for "is anybody there who has this agent?"; a worker's own row is refreshed as it renews.
CREATE TABLE workers (
    id         text PRIMARY KEY,
    agents     text[] NOT NULL,
    capacity   int  NOT NULL,
    host       text NOT NULL,
    pid        int  NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
