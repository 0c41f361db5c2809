-- Executions, which group threads by what somebody wants, and replays, which go on from an earlier position in a history.

CREATE TABLE executions (
    id         uuid PRIMARY KEY,
    workspace  text NOT NULL REFERENCES workspaces,
    principal  text NOT NULL,                      -- who wants it
    agent      text NOT NULL,                      -- which agent is to achieve it
    mission    text NOT NULL,                      -- what: the first message of its first thread
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX executions_by_principal ON executions (workspace, principal, id);
CREATE INDEX executions_by_workspace ON executions (workspace, id);

ALTER TABLE threads ADD COLUMN execution uuid REFERENCES executions;
CREATE INDEX threads_of_execution ON threads (execution, created_at, id) WHERE execution IS NOT NULL;

-- Each chunk follows another one: the one before it, or, first after a replay, the one that was replayed from. Together
-- they are a tree whose branches all stay; `history_head` is where the branch ends that the model is shown now. `seq` is
-- the log's position when the chunk was written.
ALTER TABLE history ADD COLUMN parent bigint, ADD COLUMN seq bigint;
UPDATE history h SET parent = h.chunk - 1, seq = (
    SELECT coalesce(max(f.seq), 0) FROM facts f WHERE f.thread_id = h.thread_id AND f.at <= h.at);
ALTER TABLE history ALTER COLUMN parent SET NOT NULL, ALTER COLUMN seq SET NOT NULL, ADD CHECK (parent < chunk);
CREATE INDEX history_jumps ON history (thread_id, chunk) WHERE parent <> chunk - 1;
CREATE INDEX history_of_run ON history (run_id, chunk);

ALTER TABLE threads ADD COLUMN history_head bigint NOT NULL DEFAULT 0;
UPDATE threads SET history_head = history_chunks;

-- A replay is a run like any other that names what it repeats: the run, and the chunk whose history it goes on from, with
-- the run that wrote that.
ALTER TABLE runs ADD COLUMN replay_of uuid REFERENCES runs ON DELETE CASCADE, ADD COLUMN replay_chunk bigint, ADD COLUMN replay_begin uuid,
                 ADD COLUMN replayed_by text, ADD COLUMN replay_key text,
                 ADD CHECK (num_nulls(replay_of, replay_chunk, replay_begin, replayed_by) IN (0, 4));
CREATE UNIQUE INDEX runs_replay_key ON runs (replay_of, replayed_by, replay_key) WHERE replay_key IS NOT NULL;

CREATE INDEX requests_of_run ON requests (run_id, attempt);

-- What is on record stands: nobody changes a fact or what a model was shown, and neither goes before its thread does.
CREATE FUNCTION record_stands() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = OLD.thread_id) THEN RETURN OLD; END IF;
    RAISE EXCEPTION 'what is on record stands: % of % is refused', TG_OP, TG_TABLE_NAME;
END $$;
CREATE TRIGGER record_stands BEFORE UPDATE OR DELETE ON facts FOR EACH ROW EXECUTE FUNCTION record_stands();
CREATE TRIGGER record_stands BEFORE UPDATE OR DELETE ON history FOR EACH ROW EXECUTE FUNCTION record_stands();

-- Replaced by versions that say where the history ends.
DROP FUNCTION IF EXISTS claim_v2(uuid, text[], int[], text, uuid, interval, boolean, uuid);
DROP FUNCTION IF EXISTS hold_v1(text, text, text[], uuid, text, uuid, interval, uuid, uuid);
