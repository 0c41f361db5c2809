"""A stack of its own for the measurements: servers that sync to disk, a worker, an API replica, the floors' partner."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.agents import app
from benchmarks.errors import NothingCame, ProcessEnded
from benchmarks.floors import Floors, open_floors
from benchmarks.progress import Meter
from benchmarks.stamps import HOST, PORT_VARIABLE, Stamps
from threadhold.adapters.bootstrap import open_runner
from threadhold.adapters.client import Client
from threadhold.adapters.http.auth import local_principal
from threadhold.adapters.settings import Settings
from threadhold.runner.machine import is_final
from threadhold.runner.records import Run
from threadhold.runner.service import Runner
from threadhold.storage.migrate import migrate

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = "benchmarks.agents:app"
CAPACITY: Final = 50
READY_WITHIN_S: Final = 30.0
READY_EVERY_S: Final = 0.05
ENDED_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.003
BY: Final = local_principal()  # as over REST


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every measurement uses.

    `runner` is in this process, `client` speaks to an API replica in another; the agent runs in a third. More processes
    may be started with `env` and write to `logs`. What takes as long as one likes takes `minutes`.
    """

    runner: Runner
    client: Client
    stamps: Stamps
    floors: Floors
    meter: Meter
    settings: Settings
    env: dict[str, str]
    logs: Path
    minutes: float

    async def ended(self, run: str) -> Run:
        """Return a run that has ended, so that the next sample has the machine to itself.

        Raises:
            NothingCame: if it does not end in time.
        """
        try:
            async with asyncio.timeout(ENDED_WITHIN_S):
                while True:
                    seen = await self.runner.run(run, by=BY)
                    if is_final(seen.status):
                        return seen
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise NothingCame(f"the end of run {run}", ENDED_WITHIN_S) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process that was started here, and what it says."""

    pid: int
    log: Path


@contextmanager
def process(name: str, args: list[str], *, env: dict[str, str], logs: Path) -> Iterator[Started]:
    """Run a Python module as a process; ends it on leaving."""
    log = logs / f"{name}.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", *args], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT
        )
    try:
        yield Started(pid=child.pid, log=log)
    finally:
        child.terminate()
        try:
            child.wait(ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


async def ready(log: Path, text: str) -> str:
    """Return the first line of a log that contains a text.

    Raises:
        ProcessEnded: if it does not come.
    """
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            while True:
                if (line := _line(log, text)) is not None:
                    return line
                await asyncio.sleep(READY_EVERY_S)
    except TimeoutError:
        raise ProcessEnded(log.stem, _said(log)) from None


def _line(log: Path, text: str) -> str | None:
    return next((line for line in _said(log).splitlines() if text in line), None)


def _said(log: Path) -> str:
    return log.read_text(errors="replace")


@asynccontextmanager
async def open_bench(settings: Settings, logs: Path, meter: Meter, *, minutes: float) -> AsyncIterator[Bench]:
    """Start the processes on servers that run, and connect to them.

    Args:
        settings: with the URLs of both servers.
        logs: a folder for what the processes say.
        meter: shows progress.
        minutes: for what takes as long as one likes.

    Raises:
        ProcessEnded: if one does not get ready.
    """
    database_url, redis_url = settings.database_url or "", settings.redis_url or ""
    await migrate(database_url, schema=settings.db_schema)
    transport, stamps = await asyncio.get_running_loop().create_datagram_endpoint(
        Stamps, local_addr=(HOST, 0)
    )
    env = {
        **os.environ,
        "THREADHOLD_DATABASE_URL": database_url,
        "THREADHOLD_REDIS_URL": redis_url,
        PORT_VARIABLE: str(transport.get_extra_info("sockname")[1]),
    }
    async with AsyncExitStack() as stack:
        stack.callback(transport.close)
        floors = await stack.enter_async_context(open_floors(database_url, redis_url, stamps))
        url = await _start_processes(
            stack.enter_context(ExitStack()), database_url, redis_url, env=env, logs=logs
        )
        runner = await stack.enter_async_context(open_runner(app, settings))
        client = await stack.enter_async_context(Client(url))
        yield Bench(
            runner=runner,
            client=client,
            stamps=stamps,
            floors=floors,
            meter=meter,
            settings=settings,
            env=env,
            logs=logs,
            minutes=minutes,
        )


async def _start_processes(
    stack: ExitStack, database_url: str, redis_url: str, *, env: dict[str, str], logs: Path
) -> str:
    """Start them side by side and return the URL of the API replica."""
    commands = {
        "worker": ["threadhold", "worker", TARGET, "--capacity", str(CAPACITY)],
        "serve": ["threadhold", "serve", TARGET, "--port", "0"],
        "partner": ["benchmarks.partner", database_url, redis_url],
    }
    log = {
        name: stack.enter_context(process(name, args, env=env, logs=logs)).log
        for name, args in commands.items()
    }
    await ready(log["worker"], '"worker_ready"')
    await ready(log["partner"], "partner_ready")
    return str(json.loads(await ready(log["serve"], '"api_ready"'))["url"])
