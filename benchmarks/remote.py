"""Processes that do as they are told: commands as JSON lines on stdin, one answer to each on stdout."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.errors import BenchError, ProcessEnded
from benchmarks.stack import ENDED_WITHIN_S, ROOT

# A line holds a thousand threads, or some thousands of samples.
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
ANSWER_WITHIN_S: Final = 90.0

Command = Callable[..., Awaitable[dict[str, Any] | None]]


class Child:
    """A process that was started here."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Have a command done and return its answer.

        Raises:
            BenchError: if none comes in time.
            ProcessEnded: if the process ends first.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do} | arguments).encode() + b"\n")
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise BenchError(f"{self._log.stem} did not {do} within {ANSWER_WITHIN_S:g} s") from None
        if not line:
            raise ProcessEnded(self._log.stem, self._log.read_text(errors="replace"))
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def child(
    name: str, module: str, *args: str, env: Mapping[str, str], logs: Path
) -> AsyncIterator[Child]:
    """Run a module that obeys; it is ended on leaving."""
    log = logs / f"{name}.log"
    pipe = asyncio.subprocess.PIPE
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *args),
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            cwd=ROOT,
            env=dict(env),
            limit=LINE_BYTES_MAX,
        )
    try:
        yield Child(process, log)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), ENDED_WITHIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def obey(commands: Mapping[str, Command]) -> None:
    """Do what comes on stdin, one command after the other, until it is closed."""
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        answer = await commands[command.pop("do")](**command)
        print(json.dumps(answer or {}), flush=True)


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that the threads of a process have used.

    Raises:
        BenchError: where the system does not say it as Linux does.
    """
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except OSError as error:
        raise BenchError(f"the processor time of process {pid} cannot be read: {error}") from None


def resident_of(pid: int) -> int:
    """Return the bytes of memory that a process holds. Linux."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def files_of(pid: int) -> int:
    """Return how many files and sockets a process has open. Linux."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
