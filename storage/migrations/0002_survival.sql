-- What claims, pauses and hand-overs need to survive crashes, restarts and frozen processes.

-- `ttl` lets any sweeper judge a claim by its own holder's terms; `hinted` says that the holder showed with a session
-- lock that it lives, so that its death is seen sooner than the ttl (functions/05_claims.sql).
ALTER TABLE claims ADD COLUMN ttl interval NOT NULL DEFAULT interval '15 s';
ALTER TABLE claims ADD COLUMN hinted boolean NOT NULL DEFAULT false;

-- `blocked_s`: for how long the worker's main loop has not ticked, told by its keeper. `draining`: an operator asked.
ALTER TABLE workers ADD COLUMN blocked_s real NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN draining boolean NOT NULL DEFAULT false;

-- 'direct': code of somebody's own holds the thread; no worker ever takes such a run.
ALTER TABLE runs ADD COLUMN kind text NOT NULL DEFAULT 'agent' CHECK (kind IN ('agent', 'direct'));
ALTER TABLE runs ADD COLUMN retry_max int NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN retried int NOT NULL DEFAULT 0 CHECK (retried <= retry_max);
CREATE INDEX runs_active ON runs (thread_id, status) WHERE status IN ('pending', 'running', 'paused');

-- When this database last came up, recovered or was promoted: no claim is taken as lapsed within one ttl of that, since
-- its holder may have had nobody to renew with. One row.
CREATE TABLE database_start (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    timeline   bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    since      timestamptz NOT NULL
);

-- The response in progress, written at most once a second. It counts only while nothing was recorded after it: its
-- fence and chunk number are then still the thread's. After a crash it becomes the last thing the agent said.
CREATE TABLE partials (
    thread_id uuid   PRIMARY KEY REFERENCES threads ON DELETE CASCADE,
    fence     bigint NOT NULL,
    chunks    bigint NOT NULL,
    message   json   NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE requests ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
CREATE INDEX requests_expiring ON requests (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;
CREATE INDEX requests_of_thread ON requests (thread_id) WHERE status = 'open';

-- When a thing that one worker does for all was last begun.
CREATE TABLE chores (
    name text PRIMARY KEY,
    at   timestamptz NOT NULL
);

-- Replaced by a version that takes more.
DROP FUNCTION IF EXISTS _close_attempt(uuid, uuid, text, text);
