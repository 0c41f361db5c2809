"""How a worker waits for calls that executors carry out, over a store and wires that the test plays."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from tests.support.waiting import until
from threadhold.runner.carrying import CarriedElsewhere
from threadhold.runner.delegation import delegate
from threadhold.runner.errors import ClaimLost, RunFailure, Unavailable
from threadhold.runner.records import Start
from threadhold.runner.remote import OUTAGE_S, SILENT, Remote
from threadhold.runner.remote_records import RemoteAsk, RemoteEnd
from threadhold.runner.within import APART

START: Any = Start(
    workspace="home",
    thread="t",
    run="r",
    agent="a",
    principal="ada",
    roles=frozenset(),
    attempt=1,
    claim_id="c",
    fence=1,
    history_head=0,
    seq=0,
    fresh=True,
    inbox=(),
)
OK = RemoteEnd(outcome="ok", result={"tool_return": False, "value": 5})


@dataclass
class FakeClock:
    """A clock that goes when the test says so."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Store:
    """Plays the database."""

    away: int = 0
    fenced: bool = False
    executor: str | None = None
    ends: dict[str, RemoteEnd] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    given_up: list[tuple[str, bool]] = field(default_factory=list)
    silences: list[timedelta | None] = field(default_factory=list)

    def _is_there(self) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("away")

    async def ask(self, start: Start, ask: RemoteAsk) -> None:
        self._is_there()
        if self.fenced:
            raise ClaimLost(start.thread, start.fence)
        self.asked.append(ask.id)

    async def ended(self, ids: Sequence[str], *, silent: timedelta | None) -> dict[str, RemoteEnd]:
        self._is_there()
        self.silences.append(silent)
        return {id: self.ends[id] for id in ids if id in self.ends}

    async def give_up(self, start: Start, id: str, *, running: bool) -> tuple[RemoteEnd | None, str | None]:
        self._is_there()
        self.given_up.append((id, running))
        return self.ends.get(id), self.executor


@dataclass
class Wires:
    """Hears the hints."""

    woken: list[tuple[str, str]] = field(default_factory=list)
    drops: list[tuple[str, str]] = field(default_factory=list)

    def asked(self, queue: str, id: str) -> None:
        self.woken.append((queue, id))

    def dropped(self, executor: str, id: str) -> None:
        self.drops.append((executor, id))


def ask(*, timeout: float = 60.0) -> RemoteAsk:
    return RemoteAsk(id="x", call_id="c1", tool="add", queue="lab", args={}, context={}, timeout=timeout)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def asked(store: Store) -> None:
    """Return when the call was asked for."""

    async def look() -> list[str]:
        return store.asked

    await until(look)


async def test_an_end_that_is_heard_of_is_looked_at_at_once(clock: FakeClock) -> None:
    store, wires = Store(away=1), Wires()
    remote = Remote(store, wires, clock=clock)
    waiting = asyncio.create_task(remote.carried_out(START, ask()))
    await asked(store)
    assert wires.woken == [("lab", "x")]
    store.ends["x"] = OK
    remote.hear("x")
    assert await waiting == 5
    remote.hear("x")
    await remote.aclose()


async def test_an_end_that_nobody_tells_is_found(clock: FakeClock) -> None:
    store = Store(ends={"x": OK})
    assert await Remote(store, Wires(), clock=clock).carried_out(START, ask()) == 5
    assert store.given_up == []


async def test_nobody_is_asked_without_the_claim(clock: FakeClock) -> None:
    wires = Wires()
    with pytest.raises(ClaimLost):
        await Remote(Store(fenced=True), wires, clock=clock).carried_out(START, ask())
    assert wires.woken == []


async def test_a_call_that_nobody_took_is_told_as_that(clock: FakeClock) -> None:
    store = Store()
    with pytest.raises(CarriedElsewhere) as raised:
        await Remote(store, Wires(), clock=clock).carried_out(START, ask(timeout=0.01))
    assert raised.value.carried.type == "executor_missing"
    assert store.given_up == [("x", False)]


async def test_an_end_that_comes_with_the_time_counts(clock: FakeClock) -> None:
    store = Store(executor="x1")
    remote = Remote(store, Wires(), clock=clock)
    waiting = asyncio.create_task(remote.carried_out(START, ask(timeout=0.01)))

    async def look() -> object:
        return store.given_up

    await until(look)
    store.ends["x"] = OK
    remote.hear("x")
    assert await waiting == 5
    assert store.given_up == [("x", False)]


async def test_an_executor_that_does_not_say_how_it_ended_is_dropped(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadhold.runner.remote.SAYING_S", 0.01)
    store, wires = Store(executor="x1"), Wires()
    with pytest.raises(CarriedElsewhere) as raised:
        await Remote(store, wires, clock=clock).carried_out(START, ask(timeout=0.01))
    assert raised.value.carried.type == "tool_timeout"
    assert (store.given_up, wires.drops) == ([("x", False), ("x", True)], [("x1", "x")])


async def test_who_stops_waiting_gives_the_call_up(clock: FakeClock) -> None:
    store, wires = Store(executor="x1"), Wires()
    remote = Remote(store, wires, clock=clock)
    waiting = asyncio.create_task(remote.carried_out(START, ask()))
    await asked(store)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await remote.aclose()
    assert (store.given_up, wires.drops) == ([("x", True)], [("x1", "x")])


async def test_nobody_is_taken_for_dead_right_after_an_outage(clock: FakeClock) -> None:
    store = Store()
    remote = Remote(store, Wires(), clock=clock)
    waiting = asyncio.create_task(remote.carried_out(START, ask()))

    async def looks(count: int) -> None:
        async def look() -> bool:
            if "x" in remote._waiting:
                remote.hear("x")
            return len(store.silences) >= count

        await until(look)

    await looks(1)
    assert store.silences[0] == SILENT
    clock.advance(OUTAGE_S + 1)
    before = len(store.silences)
    await looks(before + 2)
    assert store.silences[before + 1] is None
    clock.advance(OUTAGE_S - 1)
    await looks(len(store.silences) + 2)
    clock.advance(OUTAGE_S - 1)
    await looks(len(store.silences) + 2)
    assert store.silences[-1] == SILENT
    store.ends["x"] = OK
    remote.hear("x")
    assert await waiting == 5


async def test_an_executor_does_not_delegate_past_the_budget() -> None:
    agent = Agent(TestModel())
    token = APART.set(True)
    try:
        with pytest.raises(RunFailure, match="executor"):
            await delegate(agent, "hello")
    finally:
        APART.reset(token)
    assert (await delegate(agent, "hello")).output is not None
