"""What Postgres says of a stack, asked directly: the judge of what every process and every watcher claims."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tests.support.waiting import until
from threadhold.storage.pool import Database
from threadhold.storage.threads import PostgresFacts
from threadhold.storage.work import PostgresWork

Json = dict[str, Any]
FACTS_MAX = 10_000


class Truth:
    """Reads a stack's database, and never writes to it."""

    def __init__(self, database: Database) -> None:
        self._facts = PostgresFacts(database)
        self._work = PostgresWork(database, worker="judge", ttl=timedelta(seconds=15))

    async def facts(self, thread: str, kind: str | None = None, *, run: str | None = None) -> list[Json]:
        """Return the data of a thread's facts, each with its seq and fence."""
        frames = await self._facts.facts(thread, after=0, limit=FACTS_MAX)
        return [
            {"seq": frame.seq, "fence": frame.fence, **frame.data}
            for frame in frames
            if kind in (None, frame.data["fact"]) and run in (None, frame.run)
        ]

    async def story(self, thread: str) -> list[str]:
        """Return what happened on a thread, as the kinds of its facts."""
        return [fact["fact"] for fact in await self.facts(thread)]

    async def sees(self, thread: str, kind: str, *, run: str | None = None, within: float = 30.0) -> Json:
        """Return the first fact of a kind as soon as it stands."""
        facts = await until(
            lambda: self.facts(thread, kind, run=run), within=within, what=f"no {kind} on thread {thread}"
        )
        return facts[0]

    async def said(self, thread: str, run: str) -> str:
        """Return the last text of the model in a run."""
        facts = await self.facts(thread, "model_called", run=run)
        return str(facts[-1]["text"])

    async def worker(self, thread: str, run: str) -> str:
        """Return the name of the worker whose attempt at a run was closed last."""
        facts = await self.facts(thread, "attempt_closed", run=run)
        return str(facts[-1]["worker"]).rpartition("-")[0]

    async def history(self, thread: str) -> list[Json]:
        """Return what the model has been shown and has said, as JSON values."""
        return await self._work.history(thread, head=FACTS_MAX)

    async def broken(self) -> list[Json]:
        """Return every broken invariant of the whole stack."""
        return await self._work.audit()


@asynccontextmanager
async def truth(database_url: str) -> AsyncIterator[Truth]:
    """Yield the judge of a stack."""
    database = Database(database_url, size=2)
    await database.open()
    try:
        yield Truth(database)
    finally:
        await database.close()
