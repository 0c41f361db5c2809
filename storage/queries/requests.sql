-- name: answer
-- Answer a request.
SELECT * FROM {schema}.answer_v1($1, $2, $3, $4, $5, $6);

-- name: get_request
-- One request, if the principal may see its thread, or may or could have answered it.
SELECT q.* FROM {schema}.requests q JOIN {schema}.threads t ON t.id = q.thread_id
 WHERE q.id = $1 AND t.workspace = $2
   AND ({schema}._access(t.id, t.owner, $3, $4) IS NOT NULL OR {schema}._is_approver(q, $3, $4));

-- name: list_requests
-- Requests that a principal may see, or may or could have answered, newest first, older than an id.
SELECT q.* FROM {schema}.requests q JOIN {schema}.threads t ON t.id = q.thread_id
 WHERE t.workspace = $1 AND ($4::text IS NULL OR q.status = $4) AND ($5::uuid IS NULL OR q.thread_id = $5)
   AND ($6::uuid IS NULL OR q.id < $6)
   AND ({schema}._is_approver(q, $2, $3) OR {schema}._access(t.id, t.owner, $2, $3) IS NOT NULL)
 ORDER BY q.id DESC LIMIT $7;

-- name: pause
-- Close the attempt with requests to people.
SELECT * FROM {schema}.pause_v1($1, $2, $3, $4, $5, $6);

-- name: expired
-- Threads with requests whose time is over.
SELECT * FROM {schema}.expired_v1($1);

-- name: expire
-- Deny a thread's requests whose time is over.
SELECT * FROM {schema}.expire_v1($1);
