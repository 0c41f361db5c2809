-- name: create_thread
-- Make a thread unless its id is taken; the row that stands is returned by the read that follows.
WITH home AS (
    INSERT INTO {schema}.workspaces (id) VALUES ($2) ON CONFLICT DO NOTHING
)
INSERT INTO {schema}.threads (id, workspace, owner, agent, title, metadata) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING;

-- name: get_thread
-- One thread, if the principal may see it.
SELECT t.* FROM {schema}.threads t
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;

-- name: list_threads
-- The threads a principal may see, newest first (ids of threads without a key grow with time), after an id.
SELECT t.* FROM {schema}.threads t
 WHERE t.workspace = $1 AND ($4::uuid IS NULL OR t.id < $4)
   AND (t.owner = $2 OR 'operator' = ANY ($3::text[])
        OR EXISTS (SELECT 1 FROM {schema}.members m WHERE m.thread_id = t.id AND m.principal = $2))
 ORDER BY t.id DESC LIMIT $5;

-- name: open_watch
-- Where a watch of this thread may begin: its head, and the start of its current or last run.
SELECT t.log_seq, t.fence, r.first_seq, r.fence_before
  FROM {schema}.threads t
  LEFT JOIN {schema}.runs r ON r.thread_id = t.id AND r.run_no = t.run_no
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;
