"""Resolving a thread: it is found or made, and nothing that anybody adds to it is lost."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.storage.conftest import FRIEND, ME, STRANGER, Desk
from tests.storage.test_members import SCHEMA, waits_or_ends
from tests.support.servers import Stack
from threadhold.runner.errors import (
    Forbidden,
    InvalidInput,
    NotFound,
    ThreadArchived,
    ThreadBusy,
    ThreadMismatch,
)
from threadhold.runner.memory import MemoryBinding
from threadhold.runner.records import REFS_MAX, Thread

NOTES = MemoryBinding("notes", "eu", "customer-7")
FILES = MemoryBinding("files", "eu", "customer-7")


async def resolve(desk: Desk, thread: str, **changes: Any) -> Thread:
    """Resolve as the owner; nothing is added but what is said."""
    nothing: dict[str, Any] = {"participants": [], "memory": [], "state_refs": [], "status": None}
    found, seq = await desk.threads.resolve(thread, **{"agent": "a", "by": ME, **nothing, **changes})
    assert seq == found.seq
    return found


async def told(desk: Desk, thread: str) -> list[dict[str, Any]]:
    """Return what the log says of resolving."""
    frames = await desk.facts.facts(thread, after=0, limit=1_000)
    return [frame.data for frame in frames if frame.data["fact"] == "thread_resolved"]


async def test_a_thread_is_made_and_then_found(desk: Desk) -> None:
    thread = str(uuid4())
    made = await resolve(desk, thread)
    assert (made.owner, made.agent, made.status, made.participants) == (ME.id, "a", "active", ("a",))
    assert await resolve(desk, thread) == made
    assert [(fact["by"], fact["made"]) for fact in await told(desk, thread)] == [(ME.id, True)]


async def test_what_is_added_comes_behind_what_is_there_and_once(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    await resolve(desk, thread, participants=["c", "a", "b", "c"], memory=[NOTES, NOTES], state_refs=["s1"])
    found = await resolve(
        desk, thread, participants=["b", "d"], memory=[FILES, NOTES], state_refs=["s2", "s1"]
    )
    assert found.participants == ("a", "c", "b", "d")
    assert (found.memory, found.state_refs) == ((NOTES, FILES), ("s1", "s2"))
    assert await desk.threads.get(thread, by=ME) == found
    facts = await told(desk, thread)
    added = [(fact["participants"], len(fact["memory"]), fact["state_refs"], fact["made"]) for fact in facts]
    assert added == [(["c", "b"], 1, ["s1"], False), (["d"], 1, ["s2"], False)]
    assert facts[1]["memory"] == [{"connector": "files", "instance": "eu", "scope": "customer-7"}]
    assert await resolve(desk, thread, participants=["d"], memory=[NOTES]) == found


async def test_a_thread_of_another_agent_is_a_mismatch_and_nothing_is_added(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    before = await desk.threads.get(thread, by=ME)
    with pytest.raises(ThreadMismatch) as refused:
        await resolve(desk, thread, agent="b", participants=["c"], memory=[NOTES], status="completed")
    assert refused.value.code == "thread_mismatch"
    assert await desk.threads.get(thread, by=ME) == before


async def test_to_whoever_may_not_see_it_there_is_none(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    before = await desk.threads.get(thread, by=ME)
    for who in (FRIEND, STRANGER):
        for agent in ("a", "b"):
            with pytest.raises(NotFound):
                await resolve(desk, thread, by=who, agent=agent, participants=["c"])
    await desk.threads.set_member(thread, FRIEND.id, "read", by=ME)
    with pytest.raises(Forbidden):
        await resolve(desk, thread, by=FRIEND, participants=["c"])
    await desk.threads.set_member(thread, FRIEND.id, "write", by=ME)
    found = await resolve(desk, thread, by=FRIEND, participants=["c"])
    assert (found.owner, before.participants, found.participants) == (ME.id, ("a",), ("a", "c"))


async def test_a_status_is_changed_only_where_it_is_said(desk: Desk, thread: str) -> None:
    await resolve(desk, thread)
    completed = await resolve(desk, thread, status="completed")
    assert (completed.status, (await told(desk, thread))[-1]["status"]) == ("completed", "completed")
    assert (await resolve(desk, thread, participants=["c"])).status == "completed"
    assert "status" not in (await told(desk, thread))[-1]
    await desk.send(thread)
    with pytest.raises(ThreadBusy):
        await resolve(desk, thread, status="archived", participants=["d"])
    assert (await desk.threads.get(thread, by=ME)).participants == ("a", "c")


async def test_an_archived_thread_takes_nothing_and_stays_readable(desk: Desk, thread: str) -> None:
    await resolve(desk, thread, memory=[NOTES])
    await resolve(desk, thread, status="archived")
    for changes in ({}, {"participants": ["c"]}, {"status": "active"}):
        with pytest.raises(ThreadArchived):
            await resolve(desk, thread, **changes)
    with pytest.raises(ThreadArchived):
        await desk.send(thread)
    found = await desk.threads.get(thread, by=ME)
    assert (found.status, found.memory, found.participants) == ("archived", (NOTES,), ("a",))
    assert len(await told(desk, thread)) == 2


async def test_it_is_full_at_some_point(desk: Desk, thread: str) -> None:
    names = [f"s{n}" for n in range(REFS_MAX)]
    await resolve(desk, thread, state_refs=names)
    await resolve(desk, thread, state_refs=names, participants=["c"])
    with pytest.raises(InvalidInput) as refused:
        await resolve(desk, thread, state_refs=["one more"], participants=["d"])
    assert refused.value.data["field"] == "state_refs"
    assert (await desk.threads.get(thread, by=ME)).participants == ("a", "c")


async def test_of_fifty_at_once_nothing_is_lost(desk: Desk) -> None:
    thread = str(uuid4())
    memory = [MemoryBinding("notes", "eu", f"scope-{n}") for n in range(50)]
    await asyncio.gather(
        *(resolve_one(desk, thread, n, memory[n]) for n in range(50)),
        # Everybody says this one thing.
        *(resolve_one(desk, thread, 50, NOTES) for _ in range(5)),
    )
    found = await desk.threads.get(thread, by=ME)
    assert set(found.participants) == {"a", *(f"p{n}" for n in range(51))}
    assert len(found.participants) == 52
    assert sorted(found.state_refs) == sorted(f"s{n}" for n in range(51))
    assert set(found.memory) == {NOTES, *memory}
    facts = await told(desk, thread)
    assert [fact["made"] for fact in facts] == [True] + [False] * 50
    # In the order of the log, which is that of the lock.
    assert [name for fact in facts for name in fact["participants"]] == list(found.participants[1:])


async def test_of_two_at_once_the_second_sees_what_the_first_adds(
    desk: Desk, thread: str, stack: Stack
) -> None:
    await resolve(desk, thread)
    first: Any = await asyncpg.connect(stack.database_url)
    begun = first.transaction()
    await begun.start()
    row = await first.fetchrow(
        f"SELECT * FROM {SCHEMA}.resolve_v1($1, $2, '{{}}', $3, 'a', '{{c}}', '[]', '{{}}', NULL, 100)",
        *("home", ME.id, UUID(thread)),
    )
    assert row["outcome"] == "ok"
    second = asyncio.create_task(resolve(desk, thread, participants=["c", "d"]))
    await waits_or_ends(first, second)
    await begun.commit()
    assert (await second).participants == ("a", "c", "d")
    await first.close()


async def resolve_one(desk: Desk, thread: str, n: int, memory: MemoryBinding) -> None:
    await desk.threads.resolve(
        thread, agent="a", participants=[f"p{n}"], memory=[memory], state_refs=[f"s{n}"], status=None, by=ME
    )


async def test_a_claim_brings_what_the_thread_is_bound_to(desk: Desk, thread: str) -> None:
    await resolve(desk, thread, memory=[NOTES, FILES])
    await desk.send(thread)
    start = await desk.claim(thread)
    assert start is not None
    assert [each["scope"] for each in start.memory] == ["customer-7", "customer-7"]
    assert [each["connector"] for each in start.memory] == ["notes", "files"]
