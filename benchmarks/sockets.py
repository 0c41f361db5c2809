"""Ways to watch through a door: many clients in one process, over WebSocket and over server-sent events.

The clients look at no more of a frame than they must, since they share the machine with the server.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.client import connect

from benchmarks.tally import KIND, Tally
from benchmarks.watchers import Watchers, Way
from threadhold.adapters.settings import Settings

URL_VARIABLE: Final = "BENCH_DOOR_URL"
# So many clients connect at once.
CONNECTING_MAX: Final = 20
LINE_BYTES_MAX: Final = 1024 * 1024
_COUNTED: Final = f'"kind":"{KIND}"'
_STAMP: Final = '"stamp":'


class SocketWay:
    """Each watcher is a socket of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._watchers = Watchers()
        self._slots = asyncio.Semaphore(CONNECTING_MAX)

    async def enter(self, threads: Sequence[str], each: int, tally: Tally) -> None:
        """Connect; a watcher hears once it was told that it is up to date."""
        for thread in threads:
            for _ in range(each):
                self._watchers.add(self._watch(thread, tally))
        await self._watchers.hear(len(threads) * each)

    async def _watch(self, thread: str, tally: Tally) -> None:
        await self._slots.acquire()
        url = f"ws{self._url.removeprefix('http')}/v1/ws"
        async with connect(url, proxy=None, open_timeout=30, compression=None) as socket:
            ask = {"id": 1, "op": "watch", "thread": thread, "after": "start"}
            await socket.send(json.dumps(ask))
            hears = False
            async for text in socket:
                assert isinstance(text, str)
                _count(text, tally)
                if not hears and '"kind":"head"' in text:
                    hears = True
                    self._slots.release()
                    self._watchers.hears()

    async def leave(self) -> None:
        """Close all sockets."""
        await self._watchers.leave()

    def overflows(self) -> int:
        """Not known out here."""
        return 0


class StreamWay(SocketWay):
    """Each watcher is a stream of server-sent events."""

    async def _watch(self, thread: str, tally: Tally) -> None:
        await self._slots.acquire()
        where = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=LINE_BYTES_MAX)
        try:
            path = f"/v1/threads/{thread}/frames?after=start"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
            hears = False
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    _count(line.decode(), tally)
                elif not hears and line.startswith(b"event: head"):
                    hears = True
                    self._slots.release()
                    self._watchers.hears()
        finally:
            writer.close()


def _count(text: str, tally: Tally) -> None:
    if _COUNTED in text:
        tally.take(float(text.partition(_STAMP)[2].partition(",")[0]))
    elif '"kind":"gap"' in text:
        tally.gaps += 1


@asynccontextmanager
async def socket_way(_: Settings) -> AsyncIterator[Way]:
    """Watch by sockets at the door that the environment names."""
    yield SocketWay(os.environ[URL_VARIABLE])


@asynccontextmanager
async def stream_way(_: Settings) -> AsyncIterator[Way]:
    """Watch by streams of events at the door that the environment names."""
    yield StreamWay(os.environ[URL_VARIABLE])
