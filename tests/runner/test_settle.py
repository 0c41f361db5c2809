"""Waiting for a run to rest: by what is heard, and by looking where nothing can be heard."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.http.records import run_of
from threadhold.fanout.cursor import Position
from threadhold.fanout.frame import Delivery, Frame
from threadhold.runner import settle
from threadhold.runner.errors import NotFound
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Principal, Run
from threadhold.runner.settle import at_rest

ME = Principal(id="me", workspace="home")
HEAD = Position(seq=7, fence=1, n=1)
FOREVER_S = 60.0


@dataclass
class Stores:
    """A thread with one run, as stores and the hub show it."""

    status: RunStatus = RunStatus.RUNNING
    said: asyncio.Queue[Frame | Exception] = field(default_factory=asyncio.Queue)
    looks: int = 0
    begun: list[int] = field(default_factory=list)
    gone: bool = False

    async def get(self, run: str, *, by: Principal) -> Run:
        self.looks += 1
        if self.gone:
            raise NotFound("run", run)
        return run_of(status=self.status)

    async def start_of_watch(self, thread: str, *, by: Principal, after: str) -> Position:
        return HEAD

    async def watch(self, thread: str, position: Position, *, own: bool) -> AsyncIterator[Delivery]:
        self.begun.append(position.seq)
        while True:
            frame = await self.said.get()
            if isinstance(frame, Exception):
                raise frame
            yield Delivery(frame=frame, body=frame.body(), position=position)

    def say(self, fact: str, *, run: str = "run-1") -> None:
        """Let the hub deliver a fact."""
        data = {"fact": fact}
        self.said.put_nowait(
            Frame(thread="t", run=run, fence=1, n=0, seq=8, kind="fact", at="now", data=data)
        )

    async def wait(self, seconds: float = FOREVER_S) -> None:
        """Wait for the run to rest; a test that waits in vain is over long before the time is."""
        stores = cast(Any, self)
        async with asyncio.timeout(20):
            await at_rest(stores, stores, stores, run_of(), by=ME, wait=seconds)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    """A run that is under way, and nobody looks twice."""
    monkeypatch.setattr(settle, "LOOK_FOR_REST_EVERY_S", FOREVER_S)
    return Stores()


@pytest.mark.parametrize("fact", ["run_ended", "paused"])
async def test_what_is_heard_ends_the_wait(stores: Stores, fact: str) -> None:
    stores.say("model_called")
    stores.say(fact, run="another")
    waiting = asyncio.create_task(stores.wait())
    # Turns of the loop, until what was said is heard and whoever it ends has ended.
    for _ in range(50):
        await asyncio.sleep(0)
    assert stores.said.empty()
    assert not waiting.done()
    stores.say(fact)
    await waiting
    assert (stores.looks, stores.begun) == (1, [HEAD.seq])


async def test_what_came_before_is_seen_at_once(stores: Stores) -> None:
    stores.status = RunStatus.PAUSED
    await stores.wait()
    assert (stores.looks, stores.begun) == (1, [])


async def test_where_nothing_is_heard_it_is_looked(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "LOOK_FOR_REST_EVERY_S", 0.01)
    stores.said.put_nowait(ConnectionError("no Redis"))
    waiting = asyncio.create_task(stores.wait())
    while stores.looks < 3:
        await asyncio.sleep(0.001)
    stores.status = RunStatus.COMPLETED
    await waiting


async def test_who_may_not_see_it_any_more_is_told(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "LOOK_FOR_REST_EVERY_S", 0.01)
    waiting = asyncio.create_task(stores.wait())
    while stores.looks < 2:
        await asyncio.sleep(0.001)
    stores.gone = True
    with pytest.raises(NotFound):
        await waiting


@pytest.mark.parametrize("seconds", [0.0, 0.05])
async def test_the_time_ends_the_wait(stores: Stores, seconds: float) -> None:
    await stores.wait(seconds)
    assert stores.looks == (1 if seconds else 0)
