-- name: lock_migrations
-- One migrator at a time per database; the number only has to stay the same.
SELECT pg_advisory_xact_lock(8386654075464345188);

-- name: create_schema
-- Where everything of one stack lives.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: enter_schema
-- For this transaction only; the functions that are made in it keep it.
SET LOCAL search_path = {schema}, pg_temp;

-- name: create_migrations
-- What was applied, with the checksum of its text.
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    name     text PRIMARY KEY,
    checksum text NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: applied_migrations
-- What was applied so far.
SELECT name, checksum FROM {schema}.migrations;

-- name: note_migration
-- That a script was applied now.
INSERT INTO {schema}.migrations (name, checksum) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, at = clock_timestamp();
