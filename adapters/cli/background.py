"""`dev --chat`: the servers as a child with a log of its own, the conversation here.

Two processes, so that neither Ctrl-C nor what anybody prints mixes with the conversation. The child reads its
stdin only to notice the end of this process, and says on its stdout when it is ready or why it cannot be.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from threadhold.adapters.cli.chat import Chat, agent_or_only
from threadhold.adapters.cli.failure import CliError, failure_of
from threadhold.adapters.cli.lines import Lines
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client
from threadhold.adapters.settings import Settings

PORT: Final = 8000
READY_S: Final = 90.0
END_S: Final = 12.0
EXAMPLE: Final = Path("examples/support.py")


class Report:
    """The child's side: one JSON line on what was stdout. Whatever else is printed goes to the log."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def ready(self, url: str, agents: tuple[str, ...]) -> None:
        """Say that everything is up."""
        self._say({"ready": {"url": url, "agents": list(agents)}})

    def failed(self, error: Exception) -> int:
        """Say why it is not, and return the exit code."""
        failure = failure_of(error)
        self._say({"failed": failure.fields() | {"exit_code": failure.exit_code}})
        return failure.exit_code

    def _say(self, value: dict[str, Any]) -> None:
        with suppress(OSError):
            self._out.write(json.dumps(value) + "\n")
            self._out.flush()


def end_with_parent() -> None:
    """End this process when its stdin ends, which happens however the parent ends."""
    threading.Thread(target=_wait_for_parent, name="parent", daemon=True).start()


def _wait_for_parent() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_S)
    os._exit(1)


class ChildFailed(CliError):
    """The servers did not start, for the reason that the child gave."""


async def chat_with_dev(
    target: str, settings: Settings, terminal: Terminal, *, host: str, port: int | None, agent: str | None
) -> int:
    """Start everything, talk, end everything, and return the exit code."""
    log = _log_path(settings)
    started = time.monotonic()
    terminal.line(f"starting: database, queue, API and a worker (log: {log})", "dim")
    command = [
        *_command(target),
        "--host",
        host,
        "--port",
        str(_port(host, port)),
        "--capacity",
        str(settings.capacity),
    ]
    with _opened(log) as file:
        async with _child(command, file) as child:
            ready = await _ready(child, log)
            url = str(ready["url"])
            terminal.line(f"ready: {url} after {time.monotonic() - started:.1f} s", "dim")
            async with Client(url, token=settings.shown_token) as client:
                name = await agent_or_only(client, _agent(agent, ready["agents"]))
                terminal.line(
                    f"talking to: {name} (its model may take some seconds for its first answer)", "dim"
                )
                chat = Chat(client, terminal, Lines(0), agent=name)
                code = await _talk(chat, child, log)
    terminal.line(_next(target), "dim")
    return code


async def _talk(chat: Chat, child: Process, log: Path) -> int:
    """Talk for as long as the servers live."""
    talking = asyncio.ensure_future(chat.run(interactive=os.isatty(0)))
    gone = asyncio.ensure_future(child.wait())
    try:
        await asyncio.wait({talking, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            how = _how_it_ended(child) or "ended unexpectedly"
            raise CliError("dev_ended", f"the servers {how}; the reason is at the end of {log}")
        return talking.result()
    finally:
        for task in (talking, gone):
            task.cancel()
        await asyncio.gather(talking, gone, return_exceptions=True)


@asynccontextmanager
async def _child(command: list[str], log: BinaryIO) -> AsyncIterator[Process]:
    """Start the servers in a session of their own, and end them on leaving."""
    child = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
    )
    try:
        yield child
    finally:
        await _end(child)


async def _end(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await child.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def _ready(child: Process, log: Path) -> dict[str, Any]:
    """Return what the child says when it is ready.

    Raises:
        CliError: it failed, with its own reason, or took too long.
    """
    assert child.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            line = await child.stdout.readline()
    except TimeoutError:
        raise CliError(
            "dev_not_ready", f"the servers were not ready after {READY_S:.0f} s; see {log}"
        ) from None
    try:
        said = json.loads(line)
    except ValueError:
        said = {}
    if "ready" in said:
        ready: dict[str, Any] = said["ready"]
        return ready
    failed = said.get("failed")
    if failed is None:
        await _end(child)
        how = _how_it_ended(child)
        message = f"the servers did not start{f', they {how}' if how else ''}; see {log}"
        failed = {"code": "dev_ended", "message": message}
    raise ChildFailed(failed["code"], failed["message"])


def _how_it_ended(child: Process) -> str | None:
    """Name the signal that killed the child, if one did."""
    code = child.returncode
    if code is None or code >= 0:
        return None
    try:
        return f"were killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"were killed by signal {-code}"


def _command(target: str) -> list[str]:
    # -P: the folder we stand in must not lend its modules to our own imports; TARGET finds its own way.
    return [sys.executable, "-P", "-m", "threadhold.adapters.cli", "dev", target, "--supervised"]


def _agent(asked: str | None, agents: list[str]) -> str | None:
    """Return the agent to talk to, or None if there are several and nobody said which.

    Raises:
        CliError: there is no agent of the name that was asked for.
    """
    if asked is not None and asked not in agents:
        raise CliError("usage", f"there is no agent {asked!r}; this app has: {', '.join(agents) or 'none'}")
    return asked or (agents[0] if len(agents) == 1 else None)


def _next(target: str) -> str:
    """Return what to try next, which is neither what was just run nor a file that is not there."""
    file = Path(target.rpartition(":")[0])
    if EXAMPLE.is_file() and not (file.is_file() and file.samefile(EXAMPLE)):
        what, why = EXAMPLE, "an agent with tools; your own: path/file.py:app"
    else:
        what, why = Path("path/to/your.py"), "with `app = Threadhold(agents={...})` in it"
    return f"next: {program()} dev {what}:app --chat   ({why})"


def _port(host: str, port: int | None) -> int:
    """Return the port that was asked for; else the usual one, or any free one if that is taken."""
    if port is not None:
        return port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, PORT))
        except OSError:
            return 0
    return PORT


def _log_path(settings: Settings) -> Path:
    return Path(settings.state) / "dev.log"


def _opened(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; set THREADHOLD_STATE to a folder that can be written"
        raise CliError("state_unusable", text) from None
