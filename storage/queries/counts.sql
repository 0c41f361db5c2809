-- name: left_behind
-- The newest abandoned attempt of each of these threads, and what became of its run.
SELECT DISTINCT ON (r.thread_id) r.thread_id, a.cause, r.agent, r.status, r.reason,
       extract(epoch FROM r.ended_at - r.created_at)::float8 AS lasted_s
  FROM {schema}.threads t JOIN {schema}.runs r ON r.thread_id = t.id AND r.run_no > t.run_no - 4
  JOIN {schema}.attempts a ON a.run_id = r.id
 WHERE t.id = ANY ($1::uuid[]) AND a.outcome = 'abandoned'
 ORDER BY r.thread_id, a.fence DESC;

-- name: how_ended
-- Whose run it is, how it ended, and after how many seconds.
SELECT r.agent, r.status, r.reason, extract(epoch FROM r.ended_at - r.created_at)::float8 AS lasted_s
  FROM {schema}.runs r WHERE r.id = $1;

-- name: pending_by_agent
-- How many runs of each agent wait for a worker; the index of pending runs holds no others.
SELECT r.agent, count(*) AS runs FROM {schema}.runs r
 WHERE r.status = 'pending' AND r.kind = 'agent' GROUP BY r.agent;
