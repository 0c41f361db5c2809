"""TCP proxies between every process and its servers, in a thread with a loop of its own.

A direction of a link can `pass`, be in a `hole` (bytes vanish, connections stay open) or `hold` (bytes wait, and arrive
later even if their sender has gone: the late write of a zombie). New connections can be refused, or accepted and left
without an answer (half open); open ones can be cut with a reset.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Literal, TypeVar

T = TypeVar("T")
Flow = Literal["pass", "hole", "hold"]
Door = Literal["open", "refuse", "half open"]
PIECE: Final = 65_536
RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """One proxy: everything from one process to one server.

    Args:
        name: for people, such as "worker1 -> postgres".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.upstream: int = 0
        self.door: Door = "open"
        self.to_server: Flow = "pass"
        self.to_client: Flow = "pass"
        self.delay = 0.0
        self._changed = asyncio.Event()
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Open the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def heal(self) -> None:
        """Let everything pass again, also what was held."""
        self.door, self.to_server, self.to_client, self.delay = "open", "pass", "pass", 0.0
        self._wake()

    def cut(self) -> None:
        """End all connections now, with a reset on both sides."""
        for pair in self._open:
            for writer in pair:
                _reset(writer)
        self._wake()

    def close(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.CancelledError):
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.door == "refuse":
            _reset(writer)
            return
        while self.door == "half open":
            await self._changed.wait()
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            _reset(writer)
            return
        pair = (writer, up_writer)
        self._open.add(pair)
        try:
            pumps = [
                asyncio.ensure_future(self._pump(reader, up_writer, lambda: self.to_server)),
                asyncio.ensure_future(self._pump(up_reader, writer, lambda: self.to_client)),
            ]
            await asyncio.wait(pumps)
        finally:
            self._open.discard(pair)
            for either in pair:
                either.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Callable[[], Flow]
    ) -> None:
        """Carry one direction; what was read before its sender went is still delivered, then the end."""
        with suppress(OSError):
            while data := await reader.read(PIECE):
                while flow() == "hold":
                    await self._changed.wait()
                if flow() == "hole":
                    continue
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


class Links:
    """All proxies of a world; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self.all: dict[str, Link] = {}

    def open(self, name: str, upstream: int) -> Link:
        """Open a proxy in front of a port of this machine."""
        link = self.all[name] = Link(name)
        link.upstream = upstream
        asyncio.run_coroutine_threadsafe(link.listen(), self._loop).result(10)
        return link

    def do(self, act: Callable[[], T]) -> T:
        """Do something to a link in the proxies' own thread."""
        done: Future[T] = Future()

        def run() -> None:
            done.set_result(act())

        self._loop.call_soon_threadsafe(run)
        return done.result(10)

    def heal(self) -> None:
        """Heal every link."""
        for link in self.all.values():
            self.do(link.heal)

    def close(self) -> None:
        """Close everything."""
        for link in self.all.values():
            self.do(link.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
