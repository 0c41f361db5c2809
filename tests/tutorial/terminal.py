"""One shell in which the commands of a page are typed one after the other, as a reader does."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

COMMAND_S_MAX: Final = 120.0
# What is typed as a name is this Python's, wherever the tests run.
COMMANDS: Final = {"threadhold": ("-m", "threadhold"), "python": ()}


class Terminal:
    """A running shell."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def type(self, code: str) -> str:
        """Type commands and return all that they print."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The mark begins a line of its own, also after an answer that does not end its line.
        self._process.stdin.write(f"{code}\nprintf '\\n%s\\n' '--- done'\n".encode())
        await self._process.stdin.drain()
        async with asyncio.timeout(COMMAND_S_MAX):
            told = await self._process.stdout.readuntil(b"\n--- done\n")
        return told.decode().removesuffix("\n--- done\n")


@asynccontextmanager
async def terminal(folder: Path, env: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Open a shell in a folder, and end it with all that was started in it."""
    commands = folder / "bin"
    commands.mkdir()
    for name, args in COMMANDS.items():
        script = shlex.join([sys.executable, *args])
        (commands / name).write_text(f'#!/bin/sh\nexec {script} "$@"\n')
        (commands / name).chmod(0o755)
    (folder / ".curlrc").write_text("silent\n")
    process = await asyncio.create_subprocess_exec(
        "bash",
        cwd=folder,
        env={**env, "PATH": f"{commands}:{os.environ['PATH']}", "CURL_HOME": str(folder), "NO_COLOR": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=2**20,
    )
    try:
        yield Terminal(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
