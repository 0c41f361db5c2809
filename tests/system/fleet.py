"""A replica and workers on servers that a test takes away, and the outside witness of what their tools did."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from tests.support.processes import START_S_MAX, Process, Processes, processes
from tests.support.sending import surely
from tests.support.servers import Stack
from tests.support.waiting import until
from tests.system.conftest import ROOT
from tests.system.witness_app import APP, WITNESS_ENV, Report, reports
from threadhold.adapters.client import Client, ClientError
from threadhold.runner.machine import is_final
from threadhold.runner.records import OnBusy, Receipt, Run

AGENT: Final = "scripted"
# A bound for people: nothing is judged by it, and a machine may be slow.
END_S_MAX: Final = 120.0

T = TypeVar("T")


@dataclass
class Fleet:
    """The processes, and what is known of them from outside."""

    starter: Processes
    client: Client
    witness: Path
    workers: list[Process]

    def hire(self, name: str) -> Process:
        """Start one more worker; it is not ready yet."""
        worker = self.starter.start("worker", APP, "--name", name)
        self.workers.append(worker)
        return worker

    async def ready(self) -> None:
        """Return when every worker takes runs."""
        await asyncio.gather(*(each.says('"worker_ready"', within=START_S_MAX) for each in self.workers))

    async def send_each(self, scripts: list[str]) -> list[Receipt]:
        """Start a thread with each script."""
        return list(await asyncio.gather(*(self.surely(script) for script in scripts)))

    async def surely(
        self, content: str, thread: str | None = None, *, on_busy: OnBusy | None = None
    ) -> Receipt:
        """Send a message, again with the same key while the database is away, as a client does."""
        key = uuid4().hex
        return await surely(lambda: self.client.send(thread, content, agent=AGENT, key=key, on_busy=on_busy))

    async def ended(self, sent: list[Receipt]) -> list[Run]:
        """Return the runs that these messages started, as soon as all have ended."""

        found: list[Run] = []

        async def look() -> bool:
            runs = await asyncio.gather(*(quietly(partial(self.client.run, str(each.run))) for each in sent))
            found[:] = [run for run in runs if run is not None and is_final(run.status)]
            return len(found) == len(sent)

        await until(look, within=END_S_MAX, what="not all runs have ended")
        return found

    def reports(self, what: str) -> list[Report]:
        """Return what the tools have reported of one kind."""
        return [each for each in reports(self.witness) if each.what == what]

    async def reported(self, what: str, count: int) -> None:
        """Return when so many calls have reported something."""

        async def look() -> bool:
            return len(self.reports(what)) >= count

        await until(look, within=END_S_MAX, what=f"not {count} calls have reported {what}")

    def logged(self, *texts: str) -> list[str]:
        """Return the lines of all workers' logs that contain these texts."""
        lines = [line for worker in self.workers for line in worker.text().splitlines()]
        return [line for line in lines if all(text in line for text in texts)]

    def check_nothing_twice(self) -> None:
        """Demand that each call was begun once, and ended or was cancelled once at most."""
        for whats in (("begin",), ("end", "cancelled")):
            times = Counter(each.key for each in reports(self.witness) if each.what in whats)
            assert [key for key, count in times.items() if count > 1] == []


def open_gate(gate: Path) -> None:
    """Let everything go on that waits for it."""
    gate.touch()


async def quietly(call: Callable[[], Awaitable[T]]) -> T | None:
    """Return what a call returns, or None while the database is away."""
    try:
        return await call()
    except ClientError as error:
        if not error.passing:
            raise
        return None


@asynccontextmanager
async def fleet(
    stack: Stack, folder: Path, *, workers: int, times: Mapping[str, str]
) -> AsyncIterator[Fleet]:
    """Start a replica and workers with these times, and end them all."""
    witness = folder / "witness"
    environment = stack.environment(PYTHONPATH=ROOT, **times, **{WITNESS_ENV: str(witness)})
    with processes(environment, folder) as starter:
        replica = starter.start("serve", APP, "--port", "0")
        hired = [starter.start("worker", APP, "--name", f"worker{number}") for number in range(workers)]
        async with Client(await asyncio.to_thread(replica.url)) as client:
            made = Fleet(starter, client, witness, hired)
            await made.ready()
            yield made
