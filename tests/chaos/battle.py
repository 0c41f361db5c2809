"""One seed: a world, its clients and watchers, the faults, the peace after them, and the evidence of it all."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final
from uuid import UUID

import httpx

from tests.chaos.bugs import BUGS, installed
from tests.chaos.clients import LAST_SPEAKER, Client, Desk
from tests.chaos.evidence import Evidence, Json
from tests.chaos.faults import Injector
from tests.chaos.members import NotReady
from tests.chaos.schedule import Fault, schedule
from tests.chaos.watchers import Watcher
from tests.chaos.world import Times, World
from threadhold.storage.pool import Database
from threadhold.storage.threads import PostgresFacts
from threadhold.storage.work import PostgresWork

CLIENTS: Final = 8
THREADS: Final = 6
PEACE_S_MAX: Final = 120.0
LAST_WORDS_MAX: Final = 4
WATCH_S_MAX: Final = 30.0
FACTS_MAX: Final = 100_000
LOOK_EVERY_S: Final = 0.2
SUPERVISE_EVERY_S: Final = 0.5


@dataclass(slots=True, kw_only=True)
class Plan:
    """What one seed means.

    Args:
        seed: of all dice.
        seconds: how long clients work and faults happen.
        folder: where the world is, which must not exist.
        bug: a deliberate bug to install, by name.
    """

    seed: int
    seconds: float
    folder: Path
    bug: str | None = None

    def times(self) -> Times:
        """Return the times of claims: some worlds have a ttl that is longer than it takes to notice a death."""
        return Times(ttl=random.Random(f"times {self.seed}").choice((3.0, 3.0, 6.0)))

    def faults(self) -> list[Fault]:
        """Return what will happen."""
        more = BUGS[self.bug].more if self.bug else ()
        return schedule(self.seed, seconds=self.seconds, ttl=self.times().ttl, more=more)


@dataclass(slots=True)
class Battle:
    """Plays one plan."""

    plan: Plan
    world: World = field(init=False)
    desk: Desk = field(init=False)
    injector: Injector = field(init=False)
    watchers: list[Watcher] = field(default_factory=list, init=False)
    ended: list[str] = field(default_factory=list, init=False)
    stuck: list[str] = field(default_factory=list, init=False)
    spent: dict[str, float] = field(default_factory=dict, init=False)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = monotonic()
        yield
        self.spent[phase] = round(monotonic() - began, 1)

    async def play(self) -> Evidence:
        """Make the world, harm it, let it come to rest, and return what was seen."""
        self.world = World(self.plan.folder, self.plan.times())
        with self.world as world:
            with self._timed("set-up"):
                await self._set_up()
            async with self._supervised():
                with self._timed("fight"):
                    await self._fight()
                with self._timed("peace"):
                    await self._peace()
                with self._timed("evidence"):
                    evidence = await self._evidence()
            await asyncio.gather(*(member.end() for member in world.members.values()))
        evidence.events = self.world.witness.events()
        evidence.failures = self.desk.failures
        evidence.errors = [line for member in world.members.values() for line in member.faults()]
        return evidence

    async def _set_up(self) -> None:
        plan, world = self.plan, self.world
        await installed(world.databases.url, plan.bug)
        world.populate()
        await asyncio.gather(*(member.ready() for member in world.members.values()))
        dice = random.Random(f"threads {plan.seed}")
        threads = [str(UUID(int=dice.getrandbits(128), version=4)) for _ in range(THREADS)]
        self.desk = Desk(world.urls, threads, plan.seed)
        self.injector = Injector(world, plan.faults(), plan.seconds)

    async def _fight(self) -> None:
        """Let clients work while faults happen, and all of both come to their end."""
        plan = self.plan
        clients = [Client(number, self.desk) for number in range(1, CLIENTS + 1)]
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(client.work()) for client in clients]
            await asyncio.gather(self.injector.play(), asyncio.sleep(plan.seconds))
            self.world.links.heal()
            self.desk.closing = True
            await asyncio.wait(working, timeout=PEACE_S_MAX)
            if late := [task for task in working if not task.done()]:
                self.stuck.append(f"{len(late)} clients got no answer within {PEACE_S_MAX:.0f} s")
                for task in late:
                    task.cancel()

    async def _peace(self) -> None:
        """Wait until every thread rests; then send each a last message, whose request shows the whole history."""
        if not self.world.databases.running():
            await asyncio.to_thread(self.world.databases.restart)
        left = sorted({asked.thread for asked in self.desk.asked if asked.accepted and asked.tag})
        for member in self.world.members.values():
            try:
                await member.ready()
            except NotReady as error:
                self.stuck.append(str(error))
        client = Client(LAST_SPEAKER, self.desk)
        await self._rest(client, left)
        async with self.desk.http() as http:
            for _ in range(LAST_WORDS_MAX):
                sent = [await client.send(http, thread, "say 1 0") for thread in left]
                await self._rest(client, left)
                runs = {asked.thread: asked.answer.get("run") for asked in sent}
                # A claim that the faults have harmed may lapse only now, and take the last message's run with it.
                left = [thread for thread in left if not await self._completed(http, runs[thread])]
        self.stuck += [f"no run of {thread} completes although all is well" for thread in left]

    async def _completed(self, http: httpx.AsyncClient, run: str | None) -> bool:
        said = await self.desk.get(http, random.Random(0), f"/v1/runs/{run}")
        return str(said["status"]) == "completed"

    async def _rest(self, client: Client, threads: list[str]) -> None:
        end = monotonic() + PEACE_S_MAX
        dice = random.Random(0)
        async with self.desk.http() as http:
            for thread in threads:
                while True:
                    now = await self.desk.get(http, dice, f"/v1/threads/{thread}")
                    if now["state"] == "idle":
                        break
                    if now["state"] == "paused":
                        await client.answer(http, thread)
                    if monotonic() > end:
                        self.stuck.append(f"{thread} is {now['state']} with run {now['current_run']}")
                        break
                    await asyncio.sleep(LOOK_EVERY_S)

    @asynccontextmanager
    async def _supervised(self) -> AsyncIterator[None]:
        """Watch every thread, and start processes again that ended although nobody ended them."""
        dice = random.Random(f"watchers {self.plan.seed}")
        pairs = [(thread, transport) for thread in self.desk.threads for transport in ("ws", "sse")]
        self.watchers = [Watcher(thread, self.world.urls, by, dice) for thread, by in pairs]
        tasks = [asyncio.create_task(watcher.watch()) for watcher in self.watchers]
        tasks.append(asyncio.create_task(self._supervise()))
        try:
            yield
        finally:
            broken = [task.exception() for task in tasks if task.done() and not task.cancelled()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for error in filter(None, broken):
                raise error

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(SUPERVISE_EVERY_S)
            for member in self.world.members.values():
                if not member.lock.locked() and member.ended_by_itself():
                    self.ended.append(member.last_words())
                    member.start()

    async def _evidence(self) -> Evidence:
        threads = sorted({asked.thread for asked in self.desk.asked if asked.accepted and asked.tag})
        facts, audit = await _recorded(self.world.databases.url, threads)
        await self._caught_up(facts)
        messages, states = await self._told(threads)
        return Evidence(
            ttl=self.plan.times().ttl,
            asked=self.desk.asked,
            seen=[watcher.seen for watcher in self.watchers if watcher.seen.thread in threads],
            inflicted=self.injector.inflicted,
            facts=facts,
            messages=messages,
            states=states,
            audit=audit,
            stuck=[
                *self.stuck,
                *self.injector.broken,
                *(f"ended by itself: {words}" for words in self.ended),
            ],
        )

    async def _told(self, threads: list[str]) -> tuple[dict[str, Json], dict[str, str]]:
        """Return what the API says in the end of every accepted message and every thread."""
        dice = random.Random(0)
        async with self.desk.http() as http:
            sent = {asked.tag: asked for asked in self.desk.asked if asked.tag and asked.accepted}
            messages = {
                tag: await self.desk.get(http, dice, f"/v1/messages/{asked.answer['message']}")
                for tag, asked in sent.items()
            }
            states = {
                thread: str((await self.desk.get(http, dice, f"/v1/threads/{thread}"))["state"])
                for thread in threads
            }
        return messages, states

    async def _caught_up(self, facts: dict[str, list[Json]]) -> None:
        """Give watchers the time to see everything; who does not is found by the judge."""
        end = monotonic() + WATCH_S_MAX
        waiting = [watcher.seen for watcher in self.watchers if watcher.seen.thread in facts]
        while waiting and monotonic() < end:
            await asyncio.sleep(LOOK_EVERY_S)
            waiting = [seen for seen in waiting if len(seen.facts) < len(facts[seen.thread])]


async def _recorded(url: str, threads: list[str]) -> tuple[dict[str, list[Json]], list[Json]]:
    """Return the facts of these threads as the database has them, and what its audit finds."""
    database = Database(url, size=2)
    await database.open()
    try:
        stored = PostgresFacts(database)
        facts = {
            thread: [
                {"seq": frame.seq, "run": frame.run, "fence": frame.fence, "data": frame.data}
                for frame in await stored.facts(thread, after=0, limit=FACTS_MAX)
            ]
            for thread in threads
        }
        work = PostgresWork(database, worker="judge", ttl=timedelta(seconds=15))
        return facts, await work.audit()
    finally:
        await database.close()
