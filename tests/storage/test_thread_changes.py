"""Changes of what people see of a thread, on a real Postgres."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.storage.conftest import FRIEND, ME, Desk
from threadhold.runner.errors import NotFound, ThreadChanged
from threadhold.runner.records import Thread

NOTHING: dict[str, Any] = {"title": None, "metadata": None, "status": None}


async def rename(desk: Desk, thread: str, title: str, **changes: Any) -> Thread:
    """Change the title, as the owner."""
    return await desk.threads.update(
        thread, **{**NOTHING, "title": title, "unchanged_since": None, "by": ME, **changes}
    )


async def test_a_change_is_made_only_to_what_was_seen(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    seen = await desk.threads.get(thread, by=ME)
    first = await rename(desk, thread, "one", unchanged_since=seen.updated_at)
    assert (first.title, first.updated_at > seen.updated_at) == ("one", True)
    for moment in (seen.updated_at, first.updated_at + timedelta(microseconds=1)):
        with pytest.raises(ThreadChanged):
            await rename(desk, thread, "two", unchanged_since=moment)
    assert (await desk.threads.get(thread, by=ME)).title == "one"
    assert (await rename(desk, thread, "two")).title == "two"


async def test_whatever_happens_on_a_thread_changes_it(desk: Desk, thread: str) -> None:
    """Its state and its run are part of what is seen, so each step of a run refuses a change for what was before."""
    await desk.send(thread)
    moments = [(await desk.threads.get(thread, by=ME)).updated_at]
    start = await desk.begin(thread)
    moments.append((await desk.threads.get(thread, by=ME)).updated_at)
    await desk.work.hand_over(start)
    moments.append((await desk.threads.get(thread, by=ME)).updated_at)
    await desk.runs.stop(run=None, thread=thread, by=ME, key=None)
    moments.append((await desk.threads.get(thread, by=ME)).updated_at)
    assert moments == sorted(set(moments))


async def test_of_two_at_once_one_is_made(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    seen = (await desk.threads.get(thread, by=ME)).updated_at
    told = await asyncio.gather(
        *(rename(desk, thread, f"{n}", unchanged_since=seen) for n in range(4)), return_exceptions=True
    )
    assert sum(isinstance(each, Thread) for each in told) == 1
    assert sum(isinstance(each, ThreadChanged) for each in told) == 3


async def test_who_may_not_see_it_learns_nothing_of_its_changes(desk: Desk, thread: str) -> None:
    await desk.send(thread)
    seen = (await desk.threads.get(thread, by=ME)).updated_at
    for moment in (seen, seen - timedelta(days=1)):
        with pytest.raises(NotFound):
            await rename(desk, thread, "mine", unchanged_since=moment, by=FRIEND)
