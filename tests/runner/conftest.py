"""A Runner that also executes, in this process, on real servers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from pydantic_ai.messages import ModelMessage

from tests.runner.priced import agent
from tests.support import scripted
from tests.support.agents import app
from tests.support.servers import Stack
from tests.support.waiting import until
from threadhold import Budget, Hosted, Principal, Runner, Threadhold, open_runner
from threadhold.runner.history import loaded
from threadhold.runner.records import Receipt, Recorded, Run, Start
from threadhold.storage.pool import Database
from threadhold.storage.runs import PostgresRuns
from threadhold.storage.work import PostgresWork

ME = Principal(id="me", workspace="home")


@dataclass
class Bench:
    """A Runner with short ways to do the usual."""

    runner: Runner
    database: Database
    seen: list[list[ModelMessage]] = field(default_factory=list)

    async def send(self, content: str, thread: str | None = None, **options: Any) -> Receipt:
        """Send as the owner."""
        return await self.runner.send(thread, content, by=ME, agent="scripted", **options)

    async def idle(self, thread: str) -> list[dict[str, Any]]:
        """Wait until the thread is idle and return its facts."""
        frames = self.runner.watch(thread, by=ME, after="start", until="idle")
        return [delivery.frame.data async for delivery in frames if delivery.frame.kind == "fact"]

    async def run(self, receipt: Receipt) -> Run:
        """Wait for the end of a message's run and return it."""
        await self.idle(receipt.thread)
        assert receipt.run is not None
        return await self.runner.run(receipt.run, by=ME)

    async def ask(self, content: str, thread: str | None = None) -> list[dict[str, Any]]:
        """Send, and return the facts of the whole thread once it is idle."""
        return await self.idle((await self.send(content, thread)).thread)

    async def asked(self) -> None:
        """Wait until the model was asked: what comes now is read by the next request at the earliest."""

        async def look() -> bool:
            return bool(self.seen)

        await until(look)

    async def fact(self, thread: str, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for a fact and return it."""
        async for delivery in self.runner.watch(thread, by=ME, after="start"):
            data = delivery.frame.data
            if data.get("fact") == kind and fields.items() <= data.items():
                return data
        raise AssertionError("a watch without `until` never ends")

    async def history(self, thread: str) -> list[ModelMessage]:
        """Return the thread's history as it is stored."""
        work = PostgresWork(self.database, worker="-", ttl=None)  # type: ignore[arg-type]
        return loaded(await work.history(thread, head=10_000))


@pytest.fixture
async def bench(stack: Stack, database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """The Runner; `seen` has what the model was shown, per request; every invariant must hold in the end."""
    seen: list[list[ModelMessage]] = []
    next_step = scripted.next_step

    def watched(messages: list[ModelMessage]) -> str:
        seen.append(list(messages))
        return next_step(messages)

    monkeypatch.setattr(scripted, "next_step", watched)
    async with open_runner(app, stack.settings(), capacity=8) as runner:
        yield Bench(runner, database, seen)
    work = PostgresWork(database, worker="-", ttl=None)  # type: ignore[arg-type]
    assert await work.audit() == []


class House:
    """Runners over one database, each with a budget."""

    def __init__(self, stack: Stack, database: Database) -> None:
        self.stack = stack
        self.database = database

    @asynccontextmanager
    async def bench(self, *budgets: Budget, **options: Any) -> AsyncIterator[Bench]:
        """Open a Runner whose agent has these budgets."""
        hosted = Hosted(options.pop("agent", agent), budget=budgets, **options)
        app = Threadhold(agents={"scripted": hosted})
        async with open_runner(app, self.stack.settings(), capacity=4) as runner:
            yield Bench(runner, self.database)

    async def rows(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        """Look into the database, or change it behind the Runner's back."""
        connection = await asyncpg.connect(
            self.stack.database_url, server_settings={"search_path": "threadhold"}
        )
        try:
            return [dict(row) for row in await connection.fetch(sql, *args)]
        finally:
            await connection.close()

    async def spent(self, scope: str) -> dict[str, Any]:
        """Return the newest row of a scope."""
        return (await self.rows("SELECT * FROM spend WHERE scope = $1 ORDER BY id", scope))[-1]

    async def calls(self) -> list[dict[str, Any]]:
        """Return each call of a model, oldest first."""
        return await self.rows("SELECT * FROM model_calls ORDER BY at")


@pytest.fixture
async def house(stack: Stack, database: Database) -> AsyncIterator[House]:
    """The Runners; every invariant must hold in the end."""
    yield House(stack, database)
    assert await PostgresWork(database, worker="-", ttl=None).audit() == []  # type: ignore[arg-type]


def stop_before(
    monkeypatch: pytest.MonkeyPatch, database: Database, spends: Callable[[dict[str, Any]], bool]
) -> None:
    """Have runs stopped right before it is recorded that they spend something; their workers learn of it by that only.

    Args:
        monkeypatch: of the test.
        database: with the runs.
        spends: tells by what a run is about to spend whether it is that.
    """
    record = PostgresWork.record

    async def stopping(self: PostgresWork, start: Start, **options: Any) -> Recorded:
        if (spend := options.get("spend")) and spends(spend):
            await PostgresRuns(database).stop(run=start.run, thread=None, by=ME, key=None)
        return await record(self, start, **options)

    monkeypatch.setattr(PostgresWork, "record", stopping)


def kinds(facts: list[dict[str, Any]]) -> list[str]:
    """Return the kinds of facts, in order."""
    return [fact["fact"] for fact in facts]


def of_kind(facts: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the facts of one kind."""
    return [fact for fact in facts if fact["fact"] == kind]
