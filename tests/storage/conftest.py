"""One worker's and one person's view of the same database."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

from threadhold.runner.records import NewFact, Principal, Receipt, Start
from threadhold.storage.messages import PostgresMessages
from threadhold.storage.pool import Database
from threadhold.storage.runs import PostgresRuns
from threadhold.storage.threads import PostgresFacts, PostgresThreads
from threadhold.storage.work import PostgresWork

ME = Principal(id="me", workspace="home")
FRIEND = Principal(id="friend", workspace="home")
STRANGER = Principal(id="stranger", workspace="elsewhere", roles=frozenset({"operator"}))
W1, W2 = "w1-000000000001", "w2-000000000002"
OPERATOR = Principal(id="ops", workspace="home", roles=frozenset({"operator"}))


@dataclass
class Desk:
    """The stores of one test, with short ways to do the usual."""

    database: Database
    threads: PostgresThreads
    messages: PostgresMessages
    runs: PostgresRuns
    facts: PostgresFacts
    work: PostgresWork
    other: PostgresWork

    async def send(self, thread: str, content: str = "hello", **changes: object) -> Receipt:
        """Send as the owner; the thread is made when it is not there."""
        options = {"by": ME, "key": None, "on_busy": "steer", "create_with": "a", **changes}
        receipt, _ = await self.messages.send(thread, content, **options)  # type: ignore[arg-type]
        return receipt

    async def claim(
        self, thread: str, *, work: PostgresWork | None = None, key: str | None = None
    ) -> Start | None:
        """Claim as a worker."""
        start, _ = await (work or self.work).claim(thread, agents={"a": 0}, start_key=key or str(uuid4()))
        return start

    async def begin(self, thread: str, *, work: PostgresWork | None = None) -> Start:
        """Claim and acknowledge the start, consuming the input."""
        start = await self.claim(thread, work=work)
        assert start is not None
        seqs = [message.seq for message in start.inbox]
        fact = NewFact(kind="run_started", data={})
        await (work or self.work).record(
            start, rec_no=1, facts=[fact], delivered=seqs, shown=[{"kind": "request"}]
        )
        return start

    async def lapse(self) -> None:
        """Let the first worker's claims lapse now, and sweep them."""
        await self.work.disown("w1")
        await self.other.sweep(limit=10)

    async def kinds(self, thread: str) -> list[str]:
        """Return the kinds of a thread's facts, in order."""
        return [frame.data["fact"] for frame in await self.facts.facts(thread, after=0, limit=1000)]

    async def state(self, thread: str) -> str:
        """Return the thread's state."""
        return (await self.threads.get(thread, by=ME)).state


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    """The stores; when the test is over every invariant must hold."""
    ttl = timedelta(seconds=15)
    made = Desk(
        database=database,
        threads=PostgresThreads(database),
        messages=PostgresMessages(database),
        runs=PostgresRuns(database),
        facts=PostgresFacts(database),
        work=PostgresWork(database, worker=W1, ttl=ttl),
        other=PostgresWork(database, worker=W2, ttl=ttl),
    )
    yield made
    assert await made.work.audit() == []


@pytest.fixture
def thread() -> str:
    """A fresh thread id."""
    return str(uuid4())
