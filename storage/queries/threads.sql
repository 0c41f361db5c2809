-- name: create_thread
-- Make a thread unless its id is taken; the row that stands is returned by the read that follows.
WITH home AS (
    INSERT INTO {schema}.workspaces (id) VALUES ($2) ON CONFLICT DO NOTHING
)
INSERT INTO {schema}.threads (id, workspace, owner, agent, title, metadata, execution)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING;

-- name: update_thread
-- Change what people see of a thread.
SELECT {schema}.update_thread_v2($1, $2, $3, $4, $5, $6, $7, $8);

-- name: get_thread
-- One thread, if the principal may see it.
SELECT t.* FROM {schema}.threads t
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;

-- name: list_threads
-- The threads a principal may see, newest first (ids of threads without a key grow with time), after an id. Each part
-- follows an index of its own, so that who owns few threads does not wait for all of the workspace to be looked at.
SELECT t.* FROM {schema}.threads t
 WHERE t.id IN (
    (SELECT o.id FROM {schema}.threads o WHERE o.workspace = $1 AND o.owner = $2 AND ($4::uuid IS NULL OR o.id < $4)
      ORDER BY o.id DESC LIMIT $5)
    UNION ALL
    (SELECT m.thread_id FROM {schema}.members m JOIN {schema}.threads s ON s.id = m.thread_id
      WHERE m.principal = $2 AND s.workspace = $1 AND ($4::uuid IS NULL OR m.thread_id < $4)
      ORDER BY m.thread_id DESC LIMIT $5)
    UNION ALL
    (SELECT a.id FROM {schema}.threads a
      WHERE 'operator' = ANY ($3::text[]) AND a.workspace = $1 AND ($4::uuid IS NULL OR a.id < $4)
      ORDER BY a.id DESC LIMIT $5))
 ORDER BY t.id DESC LIMIT $5;

-- name: resolve
-- Find a thread or make it, and add to what it is about.
SELECT * FROM {schema}.resolve_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: set_member
-- Let a principal in.
SELECT * FROM {schema}.set_member_v1($1, $2, $3, $4, $5, $6, $7);

-- name: remove_member
-- Let a principal out.
SELECT {schema}.remove_member_v1($1, $2, $3, $4, $5);

-- name: list_members
-- A thread's members by name, if the principal may see the thread: one row without a member where it has none.
SELECT m.* FROM {schema}.threads t LEFT JOIN {schema}.members m ON m.thread_id = t.id
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL
 ORDER BY m.principal COLLATE "C";

-- name: open_watch
-- Where a watch of this thread may begin: its head, and the start of its current or last run.
SELECT t.log_seq, t.fence, r.first_seq, r.fence_before
  FROM {schema}.threads t
  LEFT JOIN {schema}.runs r ON r.thread_id = t.id AND r.run_no = t.run_no
 WHERE t.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;
