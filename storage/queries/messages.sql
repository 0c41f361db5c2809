-- name: send
-- Accept a message.
SELECT * FROM {schema}.send_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: get_message
-- One message, if the principal may see its thread.
SELECT i.* FROM {schema}.inbox i JOIN {schema}.threads t ON t.id = i.thread_id
 WHERE i.id = $1 AND t.workspace = $2 AND {schema}._access(t.id, t.owner, $3, $4) IS NOT NULL;
