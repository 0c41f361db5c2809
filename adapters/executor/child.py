"""A process that carries out calls for the executor that started it, one at a time, and dies with it.

Its guard starts it, with a socket and nothing else.
"""

import asyncio
import os
import socket
import sys
from dataclasses import asdict
from threading import Thread
from typing import Any

from threadhold.adapters.cli.failure import CliError
from threadhold.adapters.cli.target import load_app
from threadhold.adapters.executor.pipe import packed, taken
from threadhold.adapters.logs import configure_logs
from threadhold.adapters.output import scrubbed_output
from threadhold.runner.app import Threadhold
from threadhold.runner.credentials import PROCESS
from threadhold.runner.remote_records import RemoteCall, RemoteEnd
from threadhold.runner.remote_tool import called


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

    def say(self, answer: bytes) -> None:
        """Answer with a packed value; it reads at once."""
        self._connection.sendall(answer)

    def _hear(self) -> None:
        while (value := taken(self._connection)) is not None:
            self._loop.call_soon_threadsafe(self._heard.put_nowait, value)
        # The guard ends what is left.
        os._exit(1)


async def serve(connection: socket.socket) -> None:
    """Load the app that the executor names, and carry out its calls."""
    line = Line(connection)
    try:
        app = load_app(await line.next())
    except CliError as error:
        line.say(packed({"failed": str(error)}))
        return
    line.say(packed({"ready": True}))
    while True:
        line.say(await _answer(app, await line.next()))


async def _answer(app: Threadhold, order: dict[str, Any]) -> bytes:
    """Carry out a call and return how that came out, packed."""
    call = RemoteCall(**{**order, "roles": frozenset(order["roles"])})
    try:
        return _packed(await called(app, call))
    except asyncio.CancelledError:
        told = {
            "message": "the tool let a cancellation slip",
            "type": "CancelledError",
            "reason": "cancelled",
        }
    except Exception as error:
        # What is not a tool's own doing: the agent is not in this app, or the result cannot be told.
        told = {"message": str(error), "type": type(error).__name__, "reason": "executor"}
    return _packed(RemoteEnd(outcome="error", result=told))


def _packed(end: RemoteEnd) -> bytes:
    return packed(asdict(end))


def carry_out(connection: socket.socket) -> None:
    """Carry out the calls that come over this socket."""
    configure_logs()
    # Whatever a tool prints goes where the log goes.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with scrubbed_output(PROCESS):
        asyncio.run(serve(connection))
