"""The audit finds each broken invariant: every row here breaks one on purpose, past all guards."""

from typing import Final

import pytest

from tests.storage.conftest import ME, Desk
from tests.storage.test_spending import asks
from threadhold.runner.decisions import Decision, NewRequest
from threadhold.runner.machine import RunStatus
from threadhold.storage.requests import PostgresRequests

ASKED = NewRequest(kind="approval", call_id="c1", tool="pay", args={})

# Four threads stand in the database: one with a run in progress and a message that waits, one that is paused, one whose
# first run has ended (its request was answered) and one whose message was returned by a stop.
BREAKS: Final = [
    ("one end per run, equal to its status", "DELETE FROM facts WHERE kind = 'run_ended'"),
    ("one end per run, equal to its status", "UPDATE runs SET reason = 'timeout' WHERE status = 'stopped'"),
    (
        "no fact of a run after its end",
        "UPDATE facts f SET run_id = e.run_id FROM facts e"
        " WHERE e.kind = 'run_ended' AND f.thread_id = e.thread_id AND f.seq > e.seq",
    ),
    ("facts are gap-free", "DELETE FROM facts WHERE kind = 'run_started'"),
    ("fences never fall along the log", "UPDATE facts SET fence = 0 WHERE kind = 'run_ended'"),
    ("waiting is counted", "UPDATE threads SET waiting = waiting + 1 WHERE state = 'busy'"),
    ("the inbox is gap-free", "UPDATE threads SET inbox_seq = inbox_seq + 1"),
    (
        "each consumed message has one delivery on the log",
        "UPDATE facts SET data = '{}' WHERE kind = 'message_delivered'",
    ),
    (
        "each returned message has one return on the log",
        "UPDATE facts SET data = '{}' WHERE kind = 'message_returned'",
    ),
    ("state follows the current run", "UPDATE threads SET state = 'paused' WHERE state = 'busy'"),
    ("state follows the current run", "UPDATE threads SET state = 'busy' WHERE state = 'paused'"),
    ("a claim stands exactly while a run is running", "DELETE FROM claims"),
    ("a claim stands exactly while a run is running", "UPDATE claims SET fence = fence + 1"),
    (
        "an attempt is open exactly while its run is running",
        "UPDATE attempts SET outcome = 'completed', closed_at = now() WHERE outcome IS NULL",
    ),
    (
        "requests are open only while their run is paused",
        "UPDATE requests SET run_id = (SELECT id FROM runs WHERE status = 'running') WHERE status = 'open'",
    ),
    ("a paused run waits for somebody", "DELETE FROM requests WHERE status = 'open'"),
    (
        "each request is answered once",
        "UPDATE facts SET data = '{}' WHERE kind = 'request_answered'",
    ),
    ("every exit after a stop is a stop", "UPDATE runs SET stop_cut = 0 WHERE status = 'completed'"),
    ("fences never fall along the history", "UPDATE history SET fence = 1 WHERE chunk = 2"),
    ("history is gap-free", "DELETE FROM history WHERE chunk = 1"),
    ("the history's head is one of its chunks", "UPDATE threads SET history_head = history_chunks + 1"),
    (
        "a run begins where its origin was",
        "UPDATE runs SET replay_of = id, replay_begin = id, replay_chunk = 1, replayed_by = 'me'",
    ),
    ("no run starts for ever without an acknowledgement", "UPDATE runs SET unacked = 6"),
    ("what a run has spent is the sum of its calls", "UPDATE spend SET tokens = tokens + 1"),
    ("what a run has spent is the sum of its calls", "UPDATE spend SET held_money = held_money - 1"),
    ("what a run has spent is the sum of its calls", "DELETE FROM model_calls"),
    ("only calls of a run in progress hold anything", "UPDATE model_calls SET claim_id = gen_random_uuid()"),
    (
        "each use of a grant is on the log",
        "INSERT INTO grants (id, workspace, capability, uses, used, granted_by)"
        " VALUES (gen_random_uuid(), 'home', 'pay', 2, 1, 'ops')",
    ),
    ("only a worker's run is retried", "UPDATE runs SET kind = 'direct', attempt = 2"),
]


async def populate(desk: Desk) -> None:
    """Make the four threads."""
    busy, paused, ended, stopped = [desk.threads.new_thread_id(by=ME, key=str(n)) for n in range(4)]
    await desk.send(busy)
    await asks(desk, await desk.begin(busy), 2)
    await desk.send(busy, "wait")
    await desk.send(paused)
    await desk.work.pause(await desk.begin(paused), requests=[ASKED], history=[{"kind": "response"}])
    await desk.send(ended)
    await desk.work.pause(await desk.begin(ended), requests=[ASKED], history=[{"kind": "response"}])
    answers = PostgresRequests(desk.database)
    [request] = await answers.list(by=ME, status="open", thread=ended, before=None, limit=9)
    await answers.answer(request.id, Decision.approve(), by=ME, args_hash=None)
    await desk.work.end(await desk.begin(ended), status=RunStatus.COMPLETED, data={})
    await desk.send(ended, "once more")
    receipt = await desk.send(stopped)
    start = await desk.begin(stopped)
    await desk.send(stopped, "too late")
    await desk.runs.stop(run=receipt.run, thread=None, by=ME, key=None)
    await desk.work.end(start, status=RunStatus.STOPPED, data={})


@pytest.mark.parametrize(("invariant", "statement"), BREAKS)
async def test_a_broken_invariant_is_found(desk: Desk, invariant: str, statement: str) -> None:
    await populate(desk)
    assert await desk.work.audit() == []
    async with desk.database._pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute("SET LOCAL search_path = threadhold")
        await connection.execute(statement)
    found = {row["invariant"] for row in await desk.work.audit()}
    await desk.database._pool.execute("TRUNCATE threadhold.workspaces CASCADE")
    assert invariant in found


async def test_each_invariant_has_a_row_that_breaks_it(desk: Desk) -> None:
    source = await desk.database._pool.fetchval(
        "SELECT prosrc FROM pg_proc WHERE proname ~ '^audit_v[0-9]+$' AND pronamespace = 'threadhold'::regnamespace"
        " ORDER BY substr(proname, length('audit_v') + 1)::int DESC LIMIT 1"
    )
    named = {part.split("', ")[0].replace("''", "'") for part in source.split("SELECT '")[1:]}
    # The index `runs_one_active` stands before this one, and only its loss would let it be broken.
    assert named - {name for name, _ in BREAKS} == {"one active run per thread"}
