"""What an executor takes, keeps, kills and tells, over a store and carriers that the test plays."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from tests.support.waiting import until
from threadhold.adapters.executor import child
from threadhold.adapters.executor import executor as executing
from threadhold.adapters.executor.executor import MUTE_S, Executor
from threadhold.runner.errors import Unavailable
from threadhold.runner.remote_records import LOST, RemoteCall, RemoteEnd

OK = RemoteEnd(outcome="ok", result={"tool_return": False, "value": 5})


def a_call(id: str) -> RemoteCall:
    return RemoteCall(
        id=id,
        workspace="home",
        principal="ada",
        roles=frozenset(),
        thread="t",
        run="r",
        attempt=1,
        fence=1,
        asked_by="w",
        call_id="c1",
        agent="a",
        tool="add",
        args={},
        context={},
        left_s=60.0,
    )


@dataclass
class Store:
    """Plays the database."""

    queued: list[str] = field(default_factory=list)
    away: bool = False
    given_up: set[str] = field(default_factory=set)
    draining: bool = False
    limits: list[int] = field(default_factory=list)
    finished: dict[str, RemoteEnd] = field(default_factory=dict)
    tries: int = 0
    gate: asyncio.Event | None = None
    left: bool = False

    def _is_there(self) -> None:
        if self.away:
            raise Unavailable("away")

    async def take(self, *, limit: int, id: str | None = None) -> list[RemoteCall]:
        self._is_there()
        self.limits.append(limit)
        taken = [each for each in self.queued if id in (None, each)][:limit]
        self.queued = [each for each in self.queued if each not in taken]
        if self.gate is not None:
            await self.gate.wait()
        return [a_call(each) for each in taken]

    async def beat(self, ids: Sequence[str]) -> tuple[list[str], bool]:
        self._is_there()
        return [id for id in ids if id in self.given_up], self.draining

    async def tidy(self, *, silent: timedelta) -> None:
        self._is_there()

    async def finish(self, id: str, end: RemoteEnd) -> bool:
        self.tries += 1
        self._is_there()
        self.finished[id] = end
        return id not in self.given_up

    async def leave(self) -> None:
        self._is_there()
        self.left = True


@dataclass
class Carriers:
    """Plays the child processes: each call takes until the test ends it."""

    on_ready: Callable[[], None] = lambda: None
    ready: int = 2
    ends: dict[str, "asyncio.Future[RemoteEnd]"] = field(default_factory=dict)

    async def start(self) -> None:
        pass

    def carry_out(self, call: RemoteCall) -> asyncio.Task[RemoteEnd]:
        assert self.ready > 0, "more calls than carriers"
        self.ready -= 1
        end = self.ends[call.id] = asyncio.get_running_loop().create_future()
        return asyncio.create_task(self._carry(end))

    async def _carry(self, end: "asyncio.Future[RemoteEnd]") -> RemoteEnd:
        try:
            return await end
        finally:
            self.ready += 1

    async def aclose(self) -> None:
        pass


@dataclass
class Desk:
    """An executor with what it works with; `now` is the one number of its clock."""

    executor: Executor
    store: Store
    carriers: Carriers
    told: list[str]
    now: list[float]

    async def sees(self, condition: Callable[[], bool]) -> None:
        """Return when it is so."""

        async def look() -> bool:
            return condition()

        await until(look)


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(executing, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(executing, "FINISH_AGAIN_S", 0.01)
    store, carriers, told, now = Store(), Carriers(), list[str](), [1_000.0]

    def ready(on_ready: Callable[[], None]) -> Carriers:
        carriers.on_ready = on_ready
        return carriers

    executor = Executor(
        "lab",
        store=store,
        children=ready,
        ended=lambda call: told.append(call.id),
        clock=lambda: now[0],
    )
    made = Desk(executor, store, carriers, told, now)
    await executor.start()
    yield made
    store.away = False
    await executor.aclose(grace=0.0)


async def test_it_takes_as_many_calls_as_it_can_carry_out(desk: Desk) -> None:
    desk.store.queued = ["a", "b", "c"]
    await desk.sees(lambda: desk.executor.running == 2)
    assert desk.executor.free_slots == 0
    assert not await desk.executor.attend("c")
    desk.carriers.ends["a"].set_result(OK)
    await desk.sees(lambda: "c" in desk.carriers.ends)
    assert (desk.store.finished, desk.told) == ({"a": OK}, ["a"])
    assert max(desk.store.limits) == 2


async def test_a_call_that_is_named_is_taken_at_once(desk: Desk) -> None:
    desk.store.queued = ["a", "b"]
    assert await desk.executor.attend("b")
    assert "b" in desk.carriers.ends


async def test_what_nobody_waits_for_is_killed_and_not_told_of(desk: Desk) -> None:
    desk.store.queued = ["a", "b"]
    await desk.sees(lambda: desk.executor.running == 2)
    desk.executor.drop("a")
    await desk.sees(lambda: "a" in desk.store.finished)
    desk.store.given_up.add("b")
    await desk.sees(lambda: "b" in desk.store.finished)
    assert desk.store.finished == {"a": LOST, "b": LOST}
    assert (desk.told, desk.carriers.ready) == (["a"], 2)
    desk.executor.drop("a")


async def test_a_call_that_is_dropped_before_it_has_begun_gives_its_carrier_back(desk: Desk) -> None:
    desk.store.queued = ["a"]
    await desk.executor.attend("a")
    desk.executor.drop("a")
    await desk.sees(lambda: "a" in desk.store.finished)
    assert desk.carriers.ready == 2


async def test_an_end_is_told_until_it_is_heard(desk: Desk) -> None:
    desk.store.queued = ["a"]
    await desk.sees(lambda: "a" in desk.carriers.ends)
    desk.store.away = True
    desk.carriers.ends["a"].set_result(OK)
    await desk.sees(lambda: desk.store.tries > 2)
    assert desk.told == []
    desk.store.away = False
    await desk.sees(lambda: desk.told == ["a"])


async def test_one_that_cannot_say_that_it_lives_kills_what_it_does(desk: Desk) -> None:
    desk.store.queued = ["a"]
    await desk.sees(lambda: "a" in desk.carriers.ends)
    desk.store.away = True
    desk.now[0] += MUTE_S
    desk.executor._hush()
    assert not desk.carriers.ends["a"].cancelled()
    desk.now[0] += 1
    await desk.sees(lambda: desk.carriers.ends["a"].cancelled())


async def test_whoever_is_cancelled_while_it_takes_loses_no_call(desk: Desk) -> None:
    desk.store.gate = asyncio.Event()
    desk.store.queued = ["a"]
    attending = asyncio.create_task(desk.executor.attend("a"))
    await desk.sees(lambda: desk.store.queued == [])
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    desk.store.gate.set()
    await desk.sees(lambda: "a" in desk.carriers.ends)


async def test_a_fault_of_ours_leaves_the_outcome_unknown(desk: Desk) -> None:
    desk.store.queued = ["a"]
    await desk.sees(lambda: "a" in desk.carriers.ends)
    desk.carriers.ends["a"].set_exception(KeyError("outcome"))
    await desk.sees(lambda: desk.store.finished == {"a": LOST})


async def test_one_that_leaves_lets_calls_end_for_a_while(desk: Desk) -> None:
    desk.store.queued = ["a", "b"]
    await desk.sees(lambda: desk.executor.running == 2)
    desk.store.draining = True
    await asyncio.wait_for(desk.executor.drained(), 20)
    leaving = asyncio.create_task(desk.executor.aclose(grace=0.2))
    await desk.sees(lambda: desk.executor.leaving)
    assert desk.executor.free_slots == 0
    desk.carriers.ends["a"].set_result(OK)
    await leaving
    assert desk.store.finished == {"a": OK, "b": LOST}
    assert desk.store.left


async def test_one_that_cannot_say_that_it_lives_takes_nothing(desk: Desk) -> None:
    desk.store.away = True
    desk.now[0] += MUTE_S + 1
    assert desk.executor.free_slots == 0
    desk.store.away, desk.store.queued = False, ["a"]
    await desk.sees(lambda: "a" in desk.carriers.ends)
    desk.carriers.ends["a"].set_result(OK)
    await desk.sees(lambda: desk.store.finished == {"a": OK})


async def test_a_child_says_that_it_cannot_say_how_a_call_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def called(app: object, call: RemoteCall) -> RemoteEnd:
        return RemoteEnd(outcome="ok", result={"value": {1, 2}})

    monkeypatch.setattr(child, "called", called)
    order = asdict(a_call("a")) | {"roles": []}
    app: Any = None
    answer = json.loads((await child._answer(app, order))[4:])
    assert (answer["outcome"], answer["result"]["type"]) == ("error", "TypeError")
