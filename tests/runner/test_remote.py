"""How a worker waits for calls that executors carry out, over a store and wires that the test plays."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.durable_exec import DurableRunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from tests.support.waiting import until
from threadhold import Binding, Hosted, Threadhold, credential
from threadhold.runner import remote_tool
from threadhold.runner.carrying import Carried, CarriedElsewhere
from threadhold.runner.credentials import Learned, Secrets
from threadhold.runner.delegation import delegate
from threadhold.runner.errors import ClaimLost, RunFailure, Unavailable
from threadhold.runner.records import Start
from threadhold.runner.remote import OUTAGE_S, SILENT, Remote, RemoteTools
from threadhold.runner.remote_records import RemoteAsk, RemoteCall, RemoteEnd, end_of
from threadhold.runner.returned import RETURNED_CHARS_MAX
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
HUSH = "hush-4711-hush"
CTX = RunContext(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c1")


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


@dataclass
class Quick(Store):
    """Plays a database behind which every call ends at once."""

    args: list[Any] = field(default_factory=list)

    async def ask(self, start: Start, ask: RemoteAsk) -> None:
        self.args.append(ask.args)
        self.ends[ask.id] = OK


async def test_what_is_secret_in_facts_is_not_asked_for_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadhold.runner.remote.LOOK_EVERY_S", 0.01)
    store = Quick()
    with Secrets({}, None) as secrets:
        secrets.learn(HUSH)
        tools = RemoteTools(Remote(store, Wires()), START, {})
        assert await tools.call(Binding(executor="lab"), "add", {"with": [f"so {HUSH}"]}, CTX) == 5
    assert store.args == [{"with": ["so [secret]"]}]


async def test_a_secret_of_one_call_is_none_that_a_later_one_may_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = Learned()
    monkeypatch.setattr(remote_tool, "LEARNED", learned)
    agent, session = Agent(TestModel()), list[str]()

    @agent.tool_plain
    def login() -> None:
        session.append(credential())

    @agent.tool_plain
    def show() -> str:
        return f"logged in with {session[0]}"

    hosted = Hosted(
        agent, credentials={"vault": lambda identity: HUSH}, tools={"login": Binding(credentials="vault")}
    )
    app = Threadhold(agents={"a": hosted})
    try:
        ends = [await remote_tool.called(app, a_call(tool)) for tool in ("login", "show")]
    finally:
        learned.let_go()
    assert session == [HUSH]
    assert [end.result["value"] for end in ends] == [None, "logged in with [secret]"]


def a_call(tool: str) -> RemoteCall:
    told = DurableRunContext.serialize_run_context(CTX)
    words = dict.fromkeys(
        ("id", "workspace", "principal", "thread", "run", "asked_by", "call_id", "agent"), "a"
    )
    context = {"run": told, "memory": []}
    fields: dict[str, Any] = {**words, "tool": tool, "args": {}, "context": context, "left_s": 60.0}
    return RemoteCall(**fields, roles=frozenset(), attempt=1, fence=1)


def test_a_message_is_as_short_as_a_result() -> None:
    retry = Carried(outcome="retry", raised=ModelRetry("x" * 3_000_000))
    other = Carried(outcome="failed", type="ValueError", raised=ValueError("x" * 3_000_000))
    for carried in (retry, other):
        assert len(end_of(carried).result["message"]) == RETURNED_CHARS_MAX
