"""Far more calls than a grant has uses, all at the same moment, on three workers: which of them ran?

Each round grants so many uses, in one grant or, from the second round on, in several, and lets each of many threads
call once. The judge is what the tool itself has written down, besides the grants and the logs.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.races.stage import ALL, ME, each, kind, surely
from tests.support.histories import texts
from tests.support.scripted import prompts
from tests.support.servers import Stack
from threadhold import Hosted, Policy, Principal, Rule, Runner, Threadhold, open_runner
from threadhold.fanout.frame import Frame
from threadhold.runner.grants import Grant
from threadhold.runner.records import Receipt
from threadhold.storage.pool import Database
from threadhold.storage.threads import PostgresFacts
from threadhold.storage.work import PostgresWork

OPS: Final = Principal(id="ops", workspace=ME.workspace, roles=frozenset({"operator"}))
WORKERS: Final = 3
USES: Final = 10
CALLS: Final = 200


@dataclass
class Round:
    """What one round's runs have in common."""

    calls: int
    waiting: set[str] = field(default_factory=set)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def together(self, name: str) -> None:
        """Return when all the others are here as well."""
        self.waiting.add(name)
        if len(self.waiting) == self.calls:
            self.go.set()
        await self.go.wait()


@dataclass
class Tally:
    """What became of all calls."""

    rounds: int = 0
    grants: int = 0
    ran: int = 0
    denied: int = 0
    per_round: Counter[int] = field(default_factory=Counter)

    def report(self) -> list[str]:
        """Say it for people."""
        told = ", ".join(f"{ran} in {times} rounds" for ran, times in sorted(self.per_round.items()))
        return [
            f"{self.ran + self.denied} calls on {WORKERS} workers in {self.rounds} rounds",
            f"{self.grants} grants of {self.rounds * USES} uses in all",
            f"{self.ran} ran, {self.denied} were denied; ran: {told}",
        ]


@dataclass
class Crowd:
    """Three workers with a pool and a keeper each, whose agent's only tool needs a grant and writes down each call."""

    runners: list[Runner]
    database: Database
    chance: random.Random
    book: Path
    round: Round = field(default_factory=lambda: Round(0))

    def agent(self) -> Agent[None, str]:
        """Return the agent."""

        async def stream(
            messages: list[ModelMessage], info: AgentInfo
        ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
            if texts(messages, ToolReturnPart):
                yield "done"
                return
            await self.round.together(prompts(messages)[0])
            yield {0: DeltaToolCall(name="act", json_args="{}", tool_call_id="c")}

        agent: Agent[None, str] = Agent(FunctionModel(stream_function=stream, model_name="crowd"))

        @agent.tool_plain
        async def act() -> str:
            """Act, which cannot be taken back."""
            with self.book.open("a") as book:
                book.write("acted\n")
            return "acted"

        return agent

    @property
    def anybody(self) -> Runner:
        """One of the workers' processes."""
        return self.chance.choice(self.runners)

    async def granted(self, *, whole: bool) -> list[Grant]:
        """Grant the uses, in one grant or in parts by chance."""
        left, parts = USES, []
        while left:
            parts.append(left if whole else self.chance.randint(1, left))
            left -= parts[-1]
        return [
            await self.anybody.create_grant(
                "act",
                uses=uses,
                principal=self.chance.choice([None, ME.id]),
                expires_in=self.chance.choice([None, timedelta(hours=1), timedelta(hours=2)]),
                by=OPS,
            )
            for uses in parts
        ]

    async def facts(self, thread: str) -> list[Frame]:
        """Return a thread's facts once it is idle."""
        async for _ in self.anybody.watch(thread, by=ME, after="head", until="idle"):
            pass
        return await PostgresFacts(self.database).facts(thread, after=0, limit=ALL)


@asynccontextmanager
async def crowd(stack: Stack, *, seed: int) -> AsyncIterator[Crowd]:
    """Yield the workers; in the end no invariant is broken."""
    async with AsyncExitStack() as exits:
        folder = exits.enter_context(TemporaryDirectory())
        database = Database(stack.database_url, size=4)
        await database.open()
        exits.push_async_callback(database.close)
        made = Crowd([], database, random.Random(seed), Path(folder) / "book")
        policy = Policy([Rule("acts need a grant", "deny", tools=["act"], grant="act")])
        app = Threadhold(agents={"crowd": Hosted(made.agent(), policy=policy)})
        for _ in range(WORKERS):
            opening = open_runner(app, stack.settings(pool_size=10), capacity=CALLS // WORKERS + 1)
            made.runners.append(await exits.enter_async_context(opening))
        yield made
        work = PostgresWork(database, worker="judge", ttl=timedelta(seconds=15))
        assert await work.audit() == []


async def grants(stage: Crowd, *, count: int) -> Tally:
    """Play so many rounds, judge each, and return the tally."""
    tally = Tally()
    for _ in range(count):
        await _round(stage, tally)
    return tally


async def _round(stage: Crowd, tally: Tally) -> None:
    stage.book.write_text("")
    stage.round = Round(CALLS)
    made = await stage.granted(whole=tally.rounds == 0)
    receipts: list[Receipt] = []

    async def send(number: int) -> None:
        runner, name = stage.anybody, f"{tally.rounds}.{number}"
        receipts.append(await surely(lambda: runner.send(None, name, by=ME, key=name, agent="crowd")))

    await each(range(CALLS), send)
    logs = await asyncio.gather(*(stage.facts(receipt.thread) for receipt in receipts))
    ran = len(stage.book.read_text().splitlines())
    await _judge(stage, made, [fact for facts in logs for fact in facts], ran)
    tally.rounds += 1
    tally.grants += len(made)
    tally.ran += ran
    tally.denied += CALLS - ran
    tally.per_round[ran] += 1


async def _judge(stage: Crowd, made: list[Grant], facts: list[Frame], ran: int) -> None:
    """Demand that all who know of the calls agree that exactly the granted ones ran."""
    assert ran == USES
    now = [await stage.anybody.grant(grant.id, by=OPS) for grant in made]
    assert [(grant.used, grant.status) for grant in now] == [(grant.uses, "used_up") for grant in made]
    taken = sorted((fact.data["grant"], fact.data["use"]) for fact in facts if kind(fact) == "grant_used")
    assert taken == sorted((grant.id, use) for grant in made for use in range(1, grant.uses + 1))
    assert sum(kind(fact) == "tool_called" for fact in facts) == USES
    outcomes = Counter(fact.data["outcome"] for fact in facts if kind(fact) == "tool_returned")
    assert outcomes == {"ok": USES, "denied": CALLS - USES}
    verdicts = Counter(fact.data["verdict"] for fact in facts if kind(fact) == "policy_evaluated")
    assert verdicts == {"allow": USES, "deny": CALLS - USES}
    ended = Counter(fact.data["status"] for fact in facts if kind(fact) == "run_ended")
    assert ended == {"completed": CALLS}
