-- name: list_spend
-- What was spent in a workspace and by its principals, or by one of them: the newest periods first (what is counted for
-- good has none), in each the workspace, then who spent most.
SELECT s.scope, s.id, s.every, CASE WHEN isfinite(s.since) THEN s.since END AS since, s.model_calls, s.tool_calls, s.tokens,
       s.money::text AS money, round(s.seconds::numeric, 3)::float8 AS seconds, s.held_tokens, s.held_money::text AS held_money
  FROM (SELECT x.* FROM {schema}.spend x WHERE x.workspace = $1 AND x.scope IN ('workspace', 'principal') AND $2::text IS NULL
        UNION ALL
        SELECT x.* FROM {schema}.spend x WHERE x.workspace = $1 AND x.scope = 'principal' AND x.id = $2) s
 ORDER BY s.since DESC, s.every, s.scope = 'workspace' DESC, s.money DESC, s.tokens DESC, s.id LIMIT $3;
