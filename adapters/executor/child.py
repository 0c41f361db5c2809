"""A process that carries out calls for the executor that started it, one at a time, and dies with it.

Started as `python -m threadhold.adapters.executor.child`, with a socket and nothing else.
"""

import asyncio
import os
import signal
import socket
import sys
from dataclasses import asdict
from threading import Thread
from typing import Any, NoReturn

from threadhold.adapters.cli.failure import CliError
from threadhold.adapters.cli.target import load_app
from threadhold.adapters.executor.pipe import packed, taken
from threadhold.adapters.logs import configure_logs
from threadhold.adapters.output import scrubbed_output
from threadhold.runner.app import Threadhold
from threadhold.runner.credentials import PROCESS
from threadhold.runner.remote_records import RemoteCall, RemoteEnd
from threadhold.runner.remote_tool import called


def die() -> NoReturn:
    """Die, with everything that tools have started here."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


class Line:
    """Hears what the executor says, in a thread of its own: a tool may hold the loop when the executor dies."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        Thread(target=self._hear, name="executor", daemon=True).start()

    async def next(self) -> Any:
        """Return what it says next."""
        return await self._heard.get()

    def say(self, value: Any) -> None:
        """Answer; it reads at once."""
        self._connection.sendall(packed(value))

    def _hear(self) -> None:
        while (value := taken(self._connection)) is not None:
            self._loop.call_soon_threadsafe(self._heard.put_nowait, value)
        die()


async def serve(connection: socket.socket) -> None:
    """Load the app that the executor names, and carry out its calls."""
    line = Line(connection)
    try:
        app = load_app(await line.next())
    except CliError as error:
        line.say({"failed": str(error)})
        return
    line.say({"ready": True})
    while True:
        line.say(asdict(await _carried_out(app, await line.next())))


async def _carried_out(app: Threadhold, order: dict[str, Any]) -> RemoteEnd:
    call = RemoteCall(**{**order, "roles": frozenset(order["roles"])})
    try:
        return await called(app, call)
    except asyncio.CancelledError:
        told = {
            "message": "the tool let a cancellation slip",
            "type": "CancelledError",
            "reason": "cancelled",
        }
        return RemoteEnd(outcome="error", result=told)
    except Exception as error:
        # What is not a tool's own doing: the agent is not in this app, or the result cannot be told.
        told = {"message": str(error), "type": type(error).__name__, "reason": "executor"}
        return RemoteEnd(outcome="error", result=told)


def main() -> None:
    """Serve on the socket that was passed; signals are for the executor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_logs()
    # Whatever a tool prints goes where the log goes.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    with scrubbed_output(PROCESS):
        asyncio.run(serve(connection))


if __name__ == "__main__":
    main()
