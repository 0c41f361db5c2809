"""Where the races are run: two replicas in this process that both execute, and what each thread leaves behind."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from statistics import median
from typing import Any, Final, TypeVar

from pydantic_ai.messages import ModelMessage

from tests.races.play import AGENT, PLAYS, Play, app
from tests.support.servers import Stack
from threadhold import Decision, Principal, Runner, open_runner
from threadhold.fanout.frame import Frame
from threadhold.runner.errors import AlreadyAnswered, RequestClosed, Unavailable
from threadhold.runner.history import loaded
from threadhold.runner.records import Receipt
from threadhold.storage.pool import Database
from threadhold.storage.threads import PostgresFacts
from threadhold.storage.work import PostgresWork

ME: Final = Principal(id="me", workspace="races")
BOSS: Final = Principal(id="boss", workspace="races", roles=frozenset({"approver"}))
AT_ONCE: Final = 10
TRIES: Final = 20
ALL: Final = 10_000

T = TypeVar("T")


async def surely(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call that says that it may be repeated, as a client does."""
    for _ in range(TRIES):
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.5)
    return await call()


@dataclass
class Aim:
    """Draws delays around a moment that cannot be seen beforehand, and learns from where they fell."""

    chance: random.Random
    middle: float = 0.02
    misses: list[float] = field(default_factory=list)

    def draw(self) -> float:
        """Return a delay of about the right length: anything from none to twice that, every other time a near miss."""
        spread = 1.0 if self.chance.random() < 0.5 else 0.1
        return self.middle * self.chance.uniform(1 - spread, 1 + spread)

    def learn(self, misses: list[float]) -> None:
        """Take in by how many seconds some fell behind the moment."""
        self.misses += misses
        if misses:
            self._move_to(self.middle - 0.05 * median(misses))

    def learn_from(self, *, late: bool) -> None:
        """Take in whether one came too late, where nothing else tells how far it was from the moment."""
        self._move_to(self.middle * (0.9 if late else 1.1))

    def _move_to(self, middle: float) -> None:
        self.middle = min(2.0, max(0.001, middle))

    def within(self, seconds: float) -> int:
        """Return how many fell so close to the moment."""
        return sum(abs(miss) <= seconds for miss in self.misses)


@dataclass
class Stage:
    """Two replicas that both execute, and the judge of their database."""

    replicas: tuple[Runner, Runner]
    database: Database
    chance: random.Random
    _numbers: "count[int]" = field(default_factory=count)

    @property
    def anybody(self) -> Runner:
        """One of the replicas."""
        return self.chance.choice(self.replicas)

    async def begin(self, play: Play, *, agent: str = AGENT) -> Receipt:
        """Start a thread whose agent plays this."""
        name = f"t{next(self._numbers)}"
        PLAYS[name] = play
        runner = self.anybody
        return await surely(lambda: runner.send(None, name, by=ME, key=name, agent=agent))

    async def rests(self, thread: str) -> bool:
        """Return when the thread is idle or paused, and tell whether it is idle."""
        runner = self.anybody
        async for _ in runner.watch(thread, by=ME, after="head", until="idle"):
            pass
        return (await surely(lambda: runner.thread(thread, by=ME))).state == "idle"

    async def finish(self, thread: str) -> None:
        """Answer whatever is asked until the thread is idle."""
        while not await self.rests(thread):
            for request in await surely(lambda: self.anybody.requests(by=ME, thread=thread)):
                decision = Decision.reply("yes") if request.kind == "question" else Decision.approve()
                with suppress(AlreadyAnswered, RequestClosed):
                    await self.anybody.answer(request.id, decision, by=ME)

    async def facts(self, thread: str) -> list[Frame]:
        """Return a thread's facts."""
        return await PostgresFacts(self.database).facts(thread, after=0, limit=ALL)

    async def history(self, thread: str) -> list[ModelMessage]:
        """Return what a thread's model was shown and has said."""
        return loaded(await self._work.history(thread, head=ALL))

    async def broken(self) -> list[dict[str, Any]]:
        """Return every broken invariant."""
        return await self._work.audit()

    async def sweep(self) -> None:
        """Look once for what lapsed and expired, as each worker does once a second."""
        await self._work.sweep(limit=100)

    @property
    def _work(self) -> PostgresWork:
        return PostgresWork(self.database, worker="judge", ttl=timedelta(seconds=15))


def kind(fact: Frame) -> str:
    """Return the kind of a fact."""
    return str(fact.data["fact"])


def seconds_between(earlier: Frame, later: Frame) -> float:
    """Return how long after a fact another one was committed."""
    return (datetime.fromisoformat(later.at) - datetime.fromisoformat(earlier.at)).total_seconds()


@asynccontextmanager
async def staged(stack: Stack, *, seed: int) -> AsyncIterator[Stage]:
    """Yield a stage; in the end no invariant is broken."""
    PLAYS.clear()
    settings = stack.settings(pool_size=20)
    async with (
        open_runner(app, settings, capacity=AT_ONCE * 2) as one,
        open_runner(app, settings, capacity=AT_ONCE * 2) as other,
    ):
        database = Database(stack.database_url, size=4)
        await database.open()
        try:
            stage = Stage((one, other), database, random.Random(seed))
            yield stage
            assert await stage.broken() == []
        finally:
            await database.close()


async def each(numbers: range, act: Callable[[int], Awaitable[Any]], *, at_once: int = AT_ONCE) -> None:
    """Do something for each number, so many at once; the first failure ends it."""
    left = iter(numbers)

    async def keep_on() -> None:
        for number in left:
            await act(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(keep_on())
