-- What was admitted, what it may spend, and what it may do.

-- Admission: through which interface a run came, for which environment, and under which budget; fixed with its message,
-- before anything runs. With the principal it is what every fact of the run is about.
ALTER TABLE inbox ADD COLUMN interface text NOT NULL DEFAULT 'unknown', ADD COLUMN environment text NOT NULL DEFAULT 'development',
                  ADD COLUMN budget text;
ALTER TABLE runs  ADD COLUMN interface text NOT NULL DEFAULT 'unknown', ADD COLUMN environment text NOT NULL DEFAULT 'development',
                  ADD COLUMN budget text;
-- How often a run has failed and was tried again.
ALTER TABLE runs ADD COLUMN failed_tries int NOT NULL DEFAULT 0;
CREATE FUNCTION admission_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % was admitted as it is', OLD.id;
END $$;
CREATE TRIGGER admission_stands BEFORE UPDATE OF thread_id, principal, interface, environment, budget ON runs FOR EACH ROW
    WHEN ((OLD.thread_id, OLD.principal, OLD.interface, OLD.environment, OLD.budget)
          IS DISTINCT FROM (NEW.thread_id, NEW.principal, NEW.interface, NEW.environment, NEW.budget))
    EXECUTE FUNCTION admission_stands();

-- Budgets. One row per thing that a limit may be set on and way to count: for good, or by the day or month that began at
-- `since`. What is spent counts in each way in which any budget of its agents' app counts there.
-- `held_*` is reserved by calls under way.
CREATE TABLE spend (
    workspace   text        NOT NULL REFERENCES workspaces,
    scope       text        NOT NULL CHECK (scope IN ('run', 'thread', 'principal', 'workspace')),
    id          text        NOT NULL,
    every       text        NOT NULL CHECK (every IN ('ever', 'day', 'month')),
    since       timestamptz NOT NULL CHECK ((every = 'ever') = (since = '-infinity')),
    model_calls bigint      NOT NULL DEFAULT 0,
    tool_calls  bigint      NOT NULL DEFAULT 0,
    tokens      bigint      NOT NULL DEFAULT 0,
    money       numeric     NOT NULL DEFAULT 0,
    seconds     float8      NOT NULL DEFAULT 0,
    held_tokens bigint      NOT NULL DEFAULT 0,
    held_money  numeric     NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, scope, id, every, since)
) WITH (fillfactor = 50);
CREATE INDEX spend_by_period ON spend (workspace, since) WHERE scope IN ('principal', 'workspace');

-- Each call of a model: what was set aside for it, and what it came to. 'lost': whoever made it is gone, and what was set
-- aside counts as spent until they say otherwise.
CREATE TABLE model_calls (
    id            uuid        PRIMARY KEY,
    run_id        uuid        NOT NULL REFERENCES runs ON DELETE CASCADE,
    claim_id      uuid        NOT NULL,
    agent         text        NOT NULL,
    depth         int         NOT NULL,
    model         text        NOT NULL,
    charged       jsonb       NOT NULL,            -- the rows of spend: [{scope, id, every, since}]
    tokens        bigint      NOT NULL,            -- set aside
    money         numeric     NOT NULL,
    state         text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'settled', 'lost')),
    input_tokens  bigint,
    output_tokens bigint,
    cost          numeric,                         -- NULL: nobody knows its price
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at    timestamptz,
    CHECK ((state = 'settled') = (settled_at IS NOT NULL))
);
CREATE INDEX model_calls_open ON model_calls (claim_id) WHERE state = 'open';
CREATE INDEX model_calls_of_run ON model_calls (run_id, at);

-- Up to when an open attempt's time is counted, and on which rows of spend.
ALTER TABLE attempts ADD COLUMN counted_at timestamptz, ADD COLUMN charged jsonb;

-- Grants: a capability that may be used a number of times, each use taken before the action. NULL: whoever, wherever.
CREATE TABLE grants (
    id         uuid        PRIMARY KEY,
    workspace  text        NOT NULL REFERENCES workspaces,
    capability text        NOT NULL,
    principal  text,
    thread_id  uuid        REFERENCES threads ON DELETE CASCADE,
    uses       int         NOT NULL CHECK (uses > 0),
    used       int         NOT NULL DEFAULT 0 CHECK (used BETWEEN 0 AND uses),
    granted_by text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    expires_at timestamptz,
    revoked_at timestamptz,
    revoked_by text,
    key        text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workspace, granted_by, key),
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
CREATE INDEX grants_by_workspace ON grants (workspace, id);
CREATE INDEX grants_usable ON grants (workspace, capability) WHERE used < uses AND revoked_at IS NULL;
CREATE INDEX grants_of_thread ON grants (thread_id) WHERE thread_id IS NOT NULL;

-- (remote calls)

-- Calls of tools that an executor carries out, a process of a named queue. A call is taken once, or never; who asked for it
-- learns how it came out, and nobody asks again.
CREATE TABLE remote_calls (
    id         uuid        PRIMARY KEY,
    workspace  text        NOT NULL REFERENCES workspaces,
    thread_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL REFERENCES runs ON DELETE CASCADE,
    attempt    int         NOT NULL,
    claim_id   uuid        NOT NULL,               -- it is carried out for no longer than this claim stands
    fence      bigint      NOT NULL,
    asked_by   text        NOT NULL,               -- the worker; to find it with a nudge
    call_id    text        NOT NULL,
    agent      text        NOT NULL,
    tool       text        NOT NULL,
    queue      text        NOT NULL,
    args       json,                               -- what the tool is to get, and what it is told of the run;
    context    json,                               -- both are gone when the call has ended
    deadline   timestamptz NOT NULL,
    status     text        NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'done', 'failed', 'given_up')),
    executor   text,                               -- who has taken it
    outcome    text CHECK (outcome IN ('ok', 'retry', 'failed', 'deferred', 'error', 'timeout', 'lost')),
    result     json,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    ended_at   timestamptz,
    CHECK ((executor IS NULL) = (started_at IS NULL)),
    CHECK ((status IN ('done', 'failed', 'given_up')) = (ended_at IS NOT NULL)),
    CHECK ((status IN ('done', 'failed')) = (outcome IS NOT NULL)),
    CHECK (status <> 'queued' OR executor IS NULL),
    CHECK (status NOT IN ('running', 'done', 'failed') OR executor IS NOT NULL)
);
CREATE INDEX remote_calls_ended ON remote_calls (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX remote_calls_queued ON remote_calls (queue, created_at, id) WHERE status = 'queued';
CREATE INDEX remote_calls_running ON remote_calls (queue) WHERE status = 'running';
CREATE INDEX remote_calls_of_run ON remote_calls (run_id, created_at);
CREATE FUNCTION remote_call_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'call % was taken by % and is % now', OLD.id, OLD.executor, OLD.status;
END $$;
CREATE TRIGGER remote_call_stands BEFORE UPDATE ON remote_calls FOR EACH ROW
    WHEN (OLD.ended_at IS NOT NULL OR OLD.executor IS NOT NULL AND NEW.executor IS DISTINCT FROM OLD.executor
          OR OLD.status = 'running' AND NEW.status = 'queued')
    EXECUTE FUNCTION remote_call_stands();

-- NULL: a worker. An executor stands among them with its queue, and with no agents.
ALTER TABLE workers ADD COLUMN queue text;

-- (run records)

-- What code of somebody's own keeps of a run beside what is known of any: its record. json, not jsonb: the bytes stay as
-- they were written. The status, the claim, the attempts and the end of such a run stand where those of all runs do.
CREATE TABLE run_records (
    run_id            uuid PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    parent_run        uuid REFERENCES runs ON DELETE SET NULL,
    checkpoint        uuid NOT NULL,
    parent_checkpoint uuid,                        -- the one before it on the thread
    body              json NOT NULL,
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX run_records_of_parent ON run_records (parent_run, run_id) WHERE parent_run IS NOT NULL;

-- Records as they stood, numbered along their thread: `state` is what the protocol knew then, `body` what the program did.
CREATE TABLE record_checkpoints (
    id        uuid PRIMARY KEY,
    thread_id uuid   NOT NULL REFERENCES threads ON DELETE CASCADE,
    n         bigint NOT NULL,
    run_id    uuid   NOT NULL REFERENCES runs ON DELETE CASCADE,
    state     jsonb  NOT NULL,
    body      json   NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (thread_id, n)
);
CREATE TRIGGER record_stands BEFORE UPDATE OR DELETE ON record_checkpoints FOR EACH ROW EXECUTE FUNCTION record_stands();

-- Which version and deployment of a program a thread is for; fixed by the first record that says so.
CREATE TABLE thread_records (
    thread_id       uuid PRIMARY KEY REFERENCES threads ON DELETE CASCADE,
    graph_version   text,
    deployment      text,
    checkpoint_refs text[] NOT NULL DEFAULT '{}'   -- of other systems; our own are record_checkpoints
);
CREATE INDEX thread_records_of_deployment ON thread_records (deployment) WHERE deployment IS NOT NULL;

-- (threads: participants and memory)

-- What a thread is about beside its own agent: which other agents take part, which memory its runs are given
-- ([{connector, instance, scope}]), and which states of other systems belong to it. Merged in order, without duplicates.
ALTER TABLE threads ADD COLUMN participants text[] NOT NULL DEFAULT '{}', ADD COLUMN memory jsonb NOT NULL DEFAULT '[]',
                    ADD COLUMN state_refs text[] NOT NULL DEFAULT '{}';

ALTER TABLE runs DROP CONSTRAINT runs_reason_check, ADD CONSTRAINT runs_reason_check CHECK (reason IN (
    'error', 'abandoned', 'poison', 'timeout', 'budget_exhausted', 'history_unsafe', 'rejected',
    'person', 'operator', 'interrupted_by_message'));

-- Replaced by versions that know what was admitted, and what may be spent.
DROP FUNCTION IF EXISTS _new_run(uuid, uuid, text, text[]);
DROP FUNCTION IF EXISTS send_v1(text, text, text[], uuid, text, text, bytea, text, uuid, uuid, text, int);
DROP FUNCTION IF EXISTS execute_v1(text, text, text[], uuid, text, text, uuid, text, bytea, uuid, uuid);
DROP FUNCTION IF EXISTS replay_v1(text, text, text[], uuid, bigint, text, uuid);
DROP FUNCTION IF EXISTS hand_over_v1(uuid, uuid, uuid, jsonb, json, uuid);
DROP FUNCTION IF EXISTS claim_v3(uuid, text[], int[], text, uuid, interval, boolean, uuid);
DROP FUNCTION IF EXISTS hold_v2(text, text, text[], uuid, text, uuid, interval, uuid, uuid);
DROP FUNCTION IF EXISTS record_v1(uuid, uuid, bigint, jsonb, json, bigint[], json);
