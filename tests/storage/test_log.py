"""What is on record, in pages, on a real Postgres."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.storage.conftest import FRIEND, ME, OPERATOR, STRANGER, Desk
from threadhold.runner.errors import NotFound
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import PAGE_BYTES_MAX, NewFact, Page, Start
from threadhold.runner.steps import calls_of
from threadhold.storage.log import PostgresLog
from threadhold.storage.pool import Database


@pytest.fixture
def log(database: Database) -> PostgresLog:
    """The log."""
    return PostgresLog(database)


def asked(*ids: str) -> NewFact:
    """The fact that a model asked for these calls."""
    return NewFact(
        kind="model_called", data={"calls": [{"id": id, "tool": "add"} for id in ids], "text": "x"}
    )


def happened(kind: str, id: str, **data: Any) -> NewFact:
    """A fact about a call."""
    return NewFact(kind=kind, data={"call_id": id, **data})


async def all_of(read: Callable[[int], Awaitable[Page[Any]]]) -> tuple[list[Any], list[int]]:
    """Return everything that pages hold, and how much each has."""
    items: list[Any] = []
    sizes: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await read(after)
        items += page.items
        sizes.append(len(page.items))
        after = page.next
    return items, sizes


async def record(
    desk: Desk, start: Start, number: int, *facts: NewFact, history: list[Any] | None = None
) -> None:
    """Record what a run did."""
    await desk.work.record(start, rec_no=number, facts=facts, history=history or [])


async def test_facts_come_in_pages_without_a_gap(desk: Desk, log: PostgresLog, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await record(desk, start, 2, *(NewFact(kind="noted", data={"n": n}) for n in range(7)))
    seq = (await desk.threads.get(thread, by=ME)).seq
    facts, sizes = await all_of(lambda after: log.facts(thread, by=ME, after=after, limit=4))
    assert [fact.seq for fact in facts] == list(range(1, seq + 1))
    assert sizes == [4] * (seq // 4) + ([seq % 4] if seq % 4 else [])
    assert [fact.data["n"] for fact in facts if fact.kind == "noted"] == list(range(7))
    assert facts[-1].run == start.run
    assert facts[-1].fence == start.fence
    assert await log.facts(thread, by=ME, after=seq, limit=4) == Page(items=[], next=None)
    assert await log.facts(thread, by=ME, after=2**63 - 1, limit=100) == Page(items=[], next=None)


async def test_a_page_ends_before_it_is_too_large(desk: Desk, log: PostgresLog, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    large = "x" * (PAGE_BYTES_MAX // 2)
    facts = [NewFact(kind="model_called", data={"text": large, "calls": [{"id": "a"}]}) for _ in range(5)]
    await record(desk, start, 2, *facts, history=[{"text": large}])
    for number in range(3, 6):
        await record(desk, start, number, history=[{"text": large}])
    _, of_facts = await all_of(lambda after: log.facts(thread, by=ME, after=after, limit=100))
    _, of_answers = await all_of(lambda after: log.answers(start.run, by=ME, after=after, limit=100))
    _, of_history = await all_of(lambda after: log.history(thread, by=ME, after=after, limit=100))
    # The second one begins within the bound, and is whole; the small things before them take no room to speak of.
    assert of_answers == [2, 2, 1]
    assert of_facts == [len(await desk.kinds(thread)) - 3, 2, 1]
    assert of_history == [3, 2]


async def test_history_is_what_was_recorded_chunk_by_chunk(desk: Desk, log: PostgresLog, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await record(desk, start, 2, history=[{"n": 1}, {"n": 2}])
    await record(desk, start, 3, history=[{"n": 3, "text": "é\x00"}])
    messages, sizes = await all_of(lambda after: log.history(thread, by=ME, after=after, limit=1))
    assert messages == await desk.work.history(thread, head=3)
    assert [message.get("n") for message in messages] == [None, 1, 2, 3]
    assert sizes == [1, 2, 1]
    assert (await log.history(thread, by=ME, after=0, limit=3)).next is None


async def test_attempts_come_in_pages(desk: Desk, log: PostgresLog, thread: str) -> None:
    await desk.send(thread)
    first = await desk.begin(thread)
    await desk.work.hand_over(first)
    second = await desk.begin(thread)
    await desk.work.end(second, status=RunStatus.COMPLETED, data={})
    attempts, sizes = await all_of(lambda after: log.attempts(first.run, by=ME, after=after, limit=1))
    assert attempts == await desk.runs.attempts(first.run)
    assert [attempt.outcome for attempt in attempts] == ["handed_over", "completed"]
    assert sizes == [1, 1]


async def test_calls_are_found_with_all_that_is_known_of_them(
    desk: Desk, log: PostgresLog, thread: str
) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    ok = {"outcome": "ok", "result": 1}
    await record(desk, start, 2, asked("a", "b"), happened("tool_called", "a"), happened("tool_called", "b"))
    await record(desk, start, 3, happened("tool_returned", "a", **ok), asked(), asked("c"))
    await record(desk, start, 4, happened("tool_called", "c"), asked("a"), happened("tool_called", "a"))
    calling = await log.answers(start.run, by=ME, after=0, limit=2, calling=True)
    assert [len(fact.data["calls"]) for fact in calling.items] == [2, 1]
    assert calling.next == calling.items[-1].seq
    answers = [fact.seq for fact in calling.items]
    first = calls_of(await log.calls(start.run, by=ME, answers=answers), answers=answers)
    assert [(call.id, call.state) for call in first] == [
        ("a", "finished"),
        ("b", "still_running"),
        ("c", "still_running"),
    ]
    last = await log.answers(start.run, by=ME, after=calling.next, limit=2, calling=True)
    again = [fact.seq for fact in last.items]
    assert last.next is None
    (second,) = calls_of(await log.calls(start.run, by=ME, answers=again), answers=again)
    assert (second.id, second.state) == ("a", "still_running")
    await desk.work.end(start, status=RunStatus.COMPLETED, data={})
    told = calls_of(await log.calls(start.run, by=ME, answers=answers), answers=answers)
    assert [call.state for call in told] == ["finished", "unknown", "unknown"]
    assert len((await log.answers(start.run, by=ME, after=0, limit=100)).items) == 4


async def test_what_nobody_may_see_is_not_found(desk: Desk, log: PostgresLog, thread: str) -> None:
    await desk.send(thread)
    start = await desk.begin(thread)
    await record(desk, start, 2, asked("a"))
    answers = [(await log.answers(start.run, by=ME, after=0, limit=1)).items[0].seq]

    def reads(thread: str, run: str) -> list[Callable[[Any], Awaitable[Page[Any]]]]:
        return [
            lambda by: log.facts(thread, by=by, after=0, limit=1),
            lambda by: log.history(thread, by=by, after=0, limit=1),
            lambda by: log.attempts(run, by=by, after=0, limit=1),
            lambda by: log.answers(run, by=by, after=0, limit=1),
        ]

    for read in reads(thread, start.run):
        for by in (ME, OPERATOR):
            assert len((await read(by)).items) == 1
        for by in (FRIEND, STRANGER):
            with pytest.raises(NotFound):
                await read(by)
    for read in (*reads(str(uuid4()), str(uuid4())), *reads("nope", "nope")):
        with pytest.raises(NotFound):
            await read(ME)
    assert await log.calls(start.run, by=ME, answers=answers) != []
    assert await log.calls(start.run, by=STRANGER, answers=answers) == []


async def test_what_has_begun_and_has_nothing_yet_is_empty(desk: Desk, log: PostgresLog, thread: str) -> None:
    receipt = await desk.send(thread)
    assert receipt.run is not None
    nothing: Page[Any] = Page(items=[], next=None)
    assert await log.history(thread, by=ME, after=0, limit=9) == nothing
    assert await log.attempts(receipt.run, by=ME, after=0, limit=9) == nothing
    assert await log.answers(receipt.run, by=ME, after=0, limit=9) == nothing
