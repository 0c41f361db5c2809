"""A run has one end, and that is one transaction with what its agent has said last."""

from uuid import UUID

import asyncpg
import pytest

from tests.storage.conftest import ME, Desk
from threadhold.runner.machine import RunStatus

REFUSING = """
    CREATE FUNCTION threadhold.refuse_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'no end today'; END $$;
    CREATE TRIGGER refuse_end BEFORE INSERT ON threadhold.facts FOR EACH ROW WHEN (NEW.kind = 'run_ended')
    EXECUTE FUNCTION threadhold.refuse_end();
"""
SAID = {"kind": "response", "text": "the last word"}


async def test_the_last_answer_and_the_end_are_committed_together(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    kinds, history = await desk.kinds(thread), await desk.work.history(thread, head=99)

    async def end() -> None:
        await desk.work.end(
            start, status=RunStatus.COMPLETED, data={"output": "the last word"}, history=[SAID]
        )

    await desk.database._pool.execute(REFUSING)
    try:
        with pytest.raises(asyncpg.RaiseError, match="no end today"):
            await end()
    finally:
        await desk.database._pool.execute("DROP FUNCTION threadhold.refuse_end CASCADE")
    run = await desk.runs.get(start.run, by=ME)
    assert (run.status, run.output, run.ended_at) == (RunStatus.RUNNING, None, None)
    assert [each.outcome for each in await desk.runs.attempts(start.run)] == [None]
    assert (await desk.kinds(thread), await desk.work.history(thread, head=99)) == (kinds, history)
    await end()
    run = await desk.runs.get(start.run, by=ME)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "the last word")
    assert await desk.kinds(thread) == [*kinds, "attempt_closed", "run_ended"]
    assert await desk.work.history(thread, head=99) == [*history, SAID]


async def test_the_database_itself_refuses_a_second_end(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    with pytest.raises(asyncpg.UniqueViolationError, match="facts_one_end"):
        await desk.database._pool.execute(
            "INSERT INTO threadhold.facts (thread_id, seq, run_id, fence, kind)"
            " SELECT thread_id, seq + 1, run_id, fence, kind FROM threadhold.facts WHERE run_id = $1"
            " ORDER BY seq DESC LIMIT 1",
            UUID(start.run),
        )
