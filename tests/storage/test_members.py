"""Members of a thread: who lets them in, what they may do, and that nobody else learns of it."""

import asyncio
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from tests.storage.conftest import FRIEND, ME, OPERATOR, STRANGER, Desk
from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold.runner.errors import Forbidden, InvalidInput, MembersFull, NotFound, OwnersOnly
from threadhold.runner.records import Access, Principal
from threadhold.storage import threads as store

SCHEMA: Final = "threadhold"
THIRD = Principal(id="third", workspace="home")


async def members(desk: Desk, thread: str) -> list[tuple[str, Access]]:
    """Return the members with what they may do."""
    return [(each.principal, each.access) for each in await desk.threads.members(thread, by=ME)]


async def test_a_member_may_read_or_write_as_the_owner_says(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    with pytest.raises(NotFound):
        await desk.send(thread, by=FRIEND)
    made = await desk.threads.set_member(thread, FRIEND.id, "read", by=ME)
    assert (made.principal, made.access, made.added_by) == (FRIEND.id, "read", ME.id)
    assert (await desk.threads.get(thread, by=FRIEND)).id == thread
    with pytest.raises(Forbidden):
        await desk.send(thread, by=FRIEND)
    again = await desk.threads.set_member(thread, FRIEND.id, "write", by=OPERATOR)
    assert (again.access, again.added_by, again.added_at) == ("write", ME.id, made.added_at)
    assert (await desk.send(thread, by=FRIEND)).disposition == "steered"
    await desk.threads.remove_member(thread, FRIEND.id, by=ME)
    with pytest.raises(NotFound):
        await desk.send(thread, by=FRIEND)
    assert await members(desk, thread) == []


async def test_members_are_listed_by_name_to_all_who_see_the_thread(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    assert await members(desk, thread) == []
    for name, access in (("zoe", "read"), ("Ada", "write"), ("bob|x/y", "read")):
        await desk.threads.set_member(thread, name, access, by=ME)  # type: ignore[arg-type]
    listed = await desk.threads.members(thread, by=Principal(id="zoe", workspace="home"))
    assert [each.principal for each in listed] == ["Ada", "bob|x/y", "zoe"]
    for who in (FRIEND, STRANGER):
        with pytest.raises(NotFound):
            await desk.threads.members(thread, by=who)


async def test_only_the_owner_and_operators_let_people_in_and_out(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    for access in ("read", "write"):
        await desk.threads.set_member(thread, FRIEND.id, access, by=ME)
        with pytest.raises(OwnersOnly):
            await desk.threads.set_member(thread, THIRD.id, "read", by=FRIEND)
        with pytest.raises(OwnersOnly):
            await desk.threads.remove_member(thread, FRIEND.id, by=FRIEND)
    for who in (THIRD, STRANGER):
        with pytest.raises(NotFound):
            await desk.threads.set_member(thread, who.id, "write", by=who)
        with pytest.raises(NotFound):
            await desk.threads.remove_member(thread, FRIEND.id, by=who)
    assert await members(desk, thread) == [(FRIEND.id, "write")]
    await desk.threads.remove_member(thread, FRIEND.id, by=OPERATOR)
    await desk.threads.remove_member(thread, FRIEND.id, by=OPERATOR)
    assert await members(desk, thread) == []


async def test_the_owner_is_no_member(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    with pytest.raises(InvalidInput):
        await desk.threads.set_member(thread, ME.id, "read", by=ME)
    assert await members(desk, thread) == []


async def test_members_have_a_bound(desk: Desk, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MEMBERS_MAX", 2)
    await desk.send(thread)
    for name in ("a", "b"):
        await desk.threads.set_member(thread, name, "read", by=ME)
    with pytest.raises(MembersFull):
        await desk.threads.set_member(thread, "c", "read", by=ME)
    await desk.threads.set_member(thread, "b", "write", by=ME)
    await desk.threads.remove_member(thread, "a", by=ME)
    await desk.threads.set_member(thread, "c", "read", by=ME)
    assert await members(desk, thread) == [("b", "write"), ("c", "read")]


async def test_of_two_who_come_at_once_the_second_counts_the_first(
    desk: Desk, thread: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MEMBERS_MAX", 1)
    await desk.send(thread)
    first: Any = await asyncpg.connect(stack.database_url)
    begun = first.transaction()
    await begun.start()
    row = await first.fetchrow(
        f"SELECT * FROM {SCHEMA}.set_member_v1($1, $2, $3, $4, 'a', 'read', 1)",
        *("home", ME.id, [], UUID(thread)),
    )
    assert row["outcome"] == "ok"
    second = asyncio.create_task(desk.threads.set_member(thread, "b", "read", by=ME))
    await waits_or_ends(first, second)
    await begun.commit()
    with pytest.raises(MembersFull):
        await second
    assert await members(desk, thread) == [("a", "read")]
    await first.close()


async def waits_or_ends(connection: Any, task: asyncio.Task[Any]) -> None:
    """Wait until a task waits for a lock that a connection holds, or has ended without."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def look() -> bool:
        return task.done() or bool(await connection.fetchval(waiting))

    await until(look)


async def test_nobody_is_let_out_in_the_middle_of_what_they_do(desk: Desk, thread: str, stack: Stack) -> None:
    await desk.send(thread)
    await desk.threads.set_member(thread, FRIEND.id, "write", by=ME)
    friends: Any = await asyncpg.connect(stack.database_url)
    begun = friends.transaction()
    await begun.start()
    await friends.execute(f"SELECT 1 FROM {SCHEMA}.threads WHERE id = $1 FOR NO KEY UPDATE", UUID(thread))
    removing = asyncio.create_task(desk.threads.remove_member(thread, FRIEND.id, by=ME))
    await waits_or_ends(friends, removing)
    assert not removing.done()
    await begun.commit()
    await removing
    assert await members(desk, thread) == []
    await friends.close()


async def test_a_list_of_threads_has_own_ones_and_those_of_others_in_pages(desk: Desk) -> None:
    made = []
    for n in range(9):
        id = desk.threads.new_thread_id(by=ME, key=None)
        owner = (ME, FRIEND, FRIEND)[n % 3]
        await desk.threads.create(id, agent="a", title=None, metadata={}, by=owner)
        if n % 3 == 2:
            await desk.threads.set_member(id, ME.id, "read", by=FRIEND)
        made.append(id)
    seen = [id for n, id in enumerate(made) if n % 3 != 1]
    assert await pages(desk, ME) == sorted(seen, reverse=True)
    assert await pages(desk, FRIEND) == sorted((id for n, id in enumerate(made) if n % 3), reverse=True)
    assert await pages(desk, OPERATOR) == sorted(made, reverse=True)
    # A member elsewhere of the same name is somebody else.
    assert await pages(desk, Principal(id=ME.id, workspace="elsewhere")) == []


async def pages(desk: Desk, by: Principal) -> list[str]:
    """Return the ids of all threads that somebody may see, fetched two at a time."""
    found: list[str] = []
    while page := await desk.threads.list(by=by, before=found[-1] if found else None, limit=2):
        found += [thread.id for thread in page]
    return found
