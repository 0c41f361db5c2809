"""Two transactions at once on one thread, and a holder that is its own successor."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.storage.conftest import ME, W1, Desk, desk, thread
from threadhold.claims.claim import Claim
from threadhold.runner.errors import ClaimLost
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import NewFact, Start
from threadhold.storage.claims import PostgresRenewer

__all__ = ["desk", "thread"]

# Many times, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)
TIMES = 30


async def ends(desk: Desk, thread: str) -> list[str]:
    """Return how the runs of a thread ended."""
    facts = await desk.facts.facts(thread, after=0, limit=1000)
    return [fact.data["status"] for fact in facts if fact.data["fact"] == "run_ended"]


async def in_turn(*acts: Awaitable[Any]) -> list[Any]:
    """Do one after the other."""
    return [await act for act in acts]


async def stop_and_start(desk: Desk, do: Callable[..., Awaitable[list[Any]]], *, stop_first: bool) -> str:
    """Stop and start a run that is pending, and return which of the two came first."""
    thread = str(uuid4())
    sent = await desk.send(thread)
    stop, claim = desk.runs.stop(run=sent.run, thread=None, by=ME, key=None), desk.claim(thread)
    if stop_first:
        (receipt, _), start = await do(stop, claim)
    else:
        start, (receipt, _) = await do(claim, stop)
    assert receipt.settled == (start is None)
    if start is not None:
        # It was told, or is told by its first record, and ends as stopped whatever it reached.
        fact = NewFact(kind="run_started", data={})
        recorded = await desk.work.record(start, rec_no=1, facts=[fact])
        assert recorded.stop_requested
        await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert await ends(desk, thread) == ["stopped"]
    assert await desk.state(thread) == "idle"
    return "stop" if start is None else "start"


async def test_a_stop_and_a_start_at_once_end_in_a_stop_whoever_comes_first(desk: Desk) -> None:
    assert await stop_and_start(desk, in_turn, stop_first=True) == "stop"
    assert await stop_and_start(desk, in_turn, stop_first=False) == "start"
    for number in range(TIMES):
        await stop_and_start(desk, asyncio.gather, stop_first=number % 2 == 0)


async def test_a_stop_and_sweeps_at_once_on_a_dead_workers_run_free_the_thread_with_one_end(
    desk: Desk,
) -> None:
    for number in range(TIMES):
        thread = str(uuid4())
        await desk.send(thread)
        start = await desk.begin(thread)
        await desk.work.disown("w1")
        acts = [
            desk.runs.stop(run=start.run, thread=None, by=ME, key=None),
            desk.other.sweep(limit=10),
            desk.work.sweep(limit=10),
        ]
        shift = number % len(acts)
        await asyncio.gather(*acts[shift:], *acts[:shift])
        # A sweep that met the stop's lock leaves the thread to the next one.
        await desk.other.sweep(limit=10)
        [end] = await ends(desk, thread)
        assert end in ("stopped", "failed")
        assert await desk.state(thread) == "idle"
        following = await desk.send(thread, "next")
        assert following.disposition == "started"


async def test_an_older_start_of_the_same_worker_writes_nothing(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    old = await desk.begin(thread)
    await desk.lapse()
    await desk.send(thread, "again")
    new = await desk.begin(thread)
    assert new.fence > old.fence
    # The holder's name is the same; only the claim's id tells them apart.
    await refused(desk, old)
    assert await desk.work.release(old, cause="drain") is None
    await desk.work.end(new, status=RunStatus.COMPLETED, data={})
    assert await ends(desk, thread) == ["failed", "completed"]


async def test_a_renewal_tells_the_older_claim_of_a_worker_from_its_present_one(
    desk: Desk, thread: str
) -> None:
    await desk.send(thread)
    old = await desk.begin(thread)
    await desk.lapse()
    await desk.send(thread, "again")
    new = await desk.begin(thread)
    renewer = PostgresRenewer(desk.database.url, schema=desk.database.schema, worker=W1, ttl=desk.work._ttl)
    try:
        claims = [Claim(thread=thread, claim_id=each.claim_id, fence=each.fence) for each in (old, new)]
        renewals = await renewer.renew(claims, blocked_s=0.0)
    finally:
        await renewer.reset()
    assert {renewal.claim_id: renewal.result for renewal in renewals} == {
        old.claim_id: "lost",
        new.claim_id: "renewed",
    }


async def refused(desk: Desk, start: Start) -> None:
    """Demand that nothing can be written under this claim."""
    with pytest.raises(ClaimLost):
        await desk.work.record(start, rec_no=2, facts=[NewFact(kind="tool_called", data={})])
    with pytest.raises(ClaimLost):
        await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    with pytest.raises(ClaimLost):
        await desk.work.hand_over(start)


async def test_the_database_itself_refuses_a_second_run_in_progress_on_a_thread(
    desk: Desk, thread: str
) -> None:
    await desk.send(thread)
    with pytest.raises(asyncpg.UniqueViolationError, match="runs_one_active"):
        await desk.database._pool.execute(
            "INSERT INTO threadhold.runs (id, thread_id, run_no, agent, principal, first_seq, fence_before, take_at)"
            " VALUES (gen_random_uuid(), $1, 99, 'a', 'me', 0, 0, now())",
            thread,
        )
