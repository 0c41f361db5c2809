"""What calls of models cost: set aside before, settled after, by whoever made them, exactly once, in all places."""

import asyncio
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from tests.storage.conftest import Desk
from threadhold.runner.errors import ClaimLost
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import NewFact, Recorded, Start
from threadhold.storage.work import PostgresWork

SCOPES = ("run", "thread", "principal", "workspace")


def spend(call: str, **limits: Any) -> dict[str, Any]:
    """Return what a call of a model sets aside: a hundred tokens and ten dollars."""
    places = [{"scope": scope} | limits.get(scope, {}) for scope in SCOPES]
    about = {"kind": "model", "id": call, "agent": "a", "depth": 0, "model": "m"}
    return about | {"tokens": 100, "money": "10", "limits": places}


async def asks(
    desk: Desk, start: Start, rec_no: int, *, work: PostgresWork | None = None, call: str = "", **limits: Any
) -> Recorded:
    """Set something aside for a call of a model."""
    asked = spend(call or str(uuid4()), **limits)
    return await (work or desk.work).record(start, rec_no=rec_no, facts=[], spend=asked)


async def spent(desk: Desk, scope: str = "workspace") -> dict[str, Any]:
    """Return the one row of a scope."""
    async with desk.database._pool.acquire() as connection:
        await connection.execute("SET search_path = threadhold")
        [row] = await connection.fetch("SELECT * FROM spend WHERE scope = $1", scope)
    return dict(row)


async def counted(desk: Desk, scope: str = "workspace") -> tuple[Any, ...]:
    """Return what is spent in a place and what is held: tokens and money of each."""
    row = await spent(desk, scope)
    return row["tokens"], row["money"], row["held_tokens"], row["held_money"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_is_set_aside_is_settled_once(desk: Desk, thread: str, scope: str) -> None:
    await desk.send(thread)
    start, call = await desk.begin(thread), str(uuid4())
    await asks(desk, start, 2, call=call)
    assert await counted(desk, scope) == (0, 0, 100, 10)
    # The same record again sets nothing aside a second time.
    await asks(desk, start, 2, call=call)
    assert await counted(desk, scope) == (0, 0, 100, 10)
    for _ in range(2):
        await desk.work.settle(call, input_tokens=30, output_tokens=5, cost=Decimal("0.5"))
        assert await counted(desk, scope) == (35, Decimal("0.5"), 0, 0)
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    assert await counted(desk, scope) == (35, Decimal("0.5"), 0, 0)


async def test_what_nobody_settles_counts_as_spent_until_somebody_does(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start, call = await desk.begin(thread), str(uuid4())
    await asks(desk, start, 2, call=call)
    await desk.lapse()
    assert await counted(desk) == (100, 10, 0, 0)
    # Whoever made the call is no holder any more, and has paid for it all the same.
    await desk.work.settle(call, input_tokens=30, output_tokens=5, cost=Decimal(1))
    assert await counted(desk) == (35, 1, 0, 0)
    with pytest.raises(ClaimLost):
        await asks(desk, start, 3)
    assert await counted(desk) == (35, 1, 0, 0)


async def test_a_call_that_nobody_made_settles_nothing(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    await asks(desk, await desk.begin(thread), 2)
    await desk.work.settle(str(uuid4()), input_tokens=1, output_tokens=1, cost=None)
    assert await counted(desk) == (0, 0, 100, 10)


async def test_a_price_that_nobody_knows_costs_nothing(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start, call = await desk.begin(thread), str(uuid4())
    await asks(desk, start, 2, call=call)
    await desk.work.settle(call, input_tokens=30, output_tokens=5, cost=None)
    assert await counted(desk) == (35, 0, 0, 0)


async def test_a_refusal_writes_nothing_and_names_each_limit(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start, call = await desk.begin(thread), str(uuid4())
    await asks(desk, start, 2, call=call)
    await desk.work.settle(call, input_tokens=60, output_tokens=40, cost=Decimal(3))
    before = await desk.kinds(thread)
    fact = NewFact(kind="tool_called", data={})
    limits: dict[str, Any] = {"run": {"tokens": 100}, "principal": {"money": "99"}}
    refused = await desk.work.record(start, rec_no=3, facts=[fact], spend=spend(str(uuid4()), **limits))
    assert refused.refused == "exhausted"
    assert [(each["scope"], each["limit"], each["matched"]) for each in refused.limits] == [
        ("run", "tokens", True),
        ("principal", "money", False),
    ]
    assert refused.limits[0]["spent"] == refused.limits[0]["max"] == 100
    assert await desk.kinds(thread) == before
    # The number is free for the record that says so.
    assert (await desk.work.record(start, rec_no=3, facts=[fact])).refused is None


async def test_what_is_held_by_calls_under_way_is_waited_for(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    start, call = await desk.begin(thread), str(uuid4())
    cap: dict[str, Any] = {"workspace": {"tokens": 100}}
    assert (await asks(desk, start, 2, call=call, **cap)).refused is None
    other = str(uuid4())
    await desk.send(other)
    theirs = await desk.begin(other, work=desk.other)
    assert (await asks(desk, theirs, 2, work=desk.other, **cap)).refused == "wait"
    await desk.work.settle(call, input_tokens=10, output_tokens=10, cost=Decimal(0))
    assert (await asks(desk, theirs, 2, work=desk.other, **cap)).refused is None


async def test_calls_at_once_never_go_over_by_more_than_the_one_that_reaches_the_limit(desk: Desk) -> None:
    """Two hundred calls of twenty runs over a cap that holds for ten of them."""
    cap: dict[str, Any] = {"workspace": {"tokens": 1000, "model_calls": 150}}
    made: list[str] = []

    async def work(number: int) -> None:
        thread = str(uuid4())
        await desk.send(thread)
        start = await desk.begin(thread)
        rec_no = 2
        for _ in range(10):
            call = str(uuid4())
            while (told := await asks(desk, start, rec_no, call=call, **cap)).refused == "wait":
                await asyncio.sleep(0)
            if told.refused:
                return
            rec_no += 1
            made.append(call)
            await desk.work.settle(call, input_tokens=90, output_tokens=9 + number % 2, cost=Decimal(1))

    await asyncio.gather(*(work(number) for number in range(20)))
    row = await spent(desk)
    assert 1000 <= row["tokens"] < 1000 + 100
    assert row["model_calls"] == len(made) == row["money"]
    assert row["held_tokens"] == 0


async def test_a_call_that_is_settled_as_its_run_is_given_up_counts_once_whoever_comes_first(
    desk: Desk,
) -> None:
    for _ in range(20):
        thread = str(uuid4())
        await desk.send(thread)
        start, call = await desk.begin(thread), str(uuid4())
        await asks(desk, start, 2, call=call)
        settling = desk.other.settle(call, input_tokens=30, output_tokens=5, cost=Decimal(1))
        await asyncio.gather(desk.work.release(start, cause="drain"), settling)
    assert await counted(desk) == (20 * 35, 20, 0, 0)


async def test_runs_that_spend_in_the_same_places_never_wait_in_a_circle(desk: Desk) -> None:
    """All at once: setting aside, settling, ending and lapsing, each over rows that the others want as well."""

    async def work(number: int) -> None:
        thread = str(uuid4())
        await desk.send(thread)
        start = await desk.begin(thread)
        calls = [str(uuid4()) for _ in range(4)]
        for rec_no, call in enumerate(calls, 2):
            await asks(desk, start, rec_no, call=call)
        settling = [
            desk.other.settle(call, input_tokens=1, output_tokens=1, cost=Decimal(1)) for call in calls
        ]
        ending = (
            desk.work.release(start, cause="drain")
            if number % 2
            else desk.work.end(start, status=RunStatus.COMPLETED, data={})
        )
        await asyncio.gather(ending, *settling)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert await counted(desk) == (160, 80, 0, 0)
