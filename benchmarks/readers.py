"""A process full of sockets that watch, stop reading when they are told to, and come back when they are cut.

Usage: python -m benchmarks.readers BUFFER

BUFFER is the size in bytes of what the kernel keeps for a socket that is not read; 0 leaves that to the system.
Commands, as JSON lines on stdin; each is answered by one object:

    watch THREADS EACH    enter, and return when all of them hear
    lags                  how late deliveries were since this was asked last
    stall                 read nothing from here on
    read_on               read what is left, come back when cut, and return when all are up to date
    until NUMBER          wait until each has the frame with this number of its thread
    report                what came, what was missing, and how often they were cut
"""

import asyncio
import json
import os
import socket
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.remote import obey
from benchmarks.sockets import CONNECTING_MAX, URL_VARIABLE
from benchmarks.stamps import now
from benchmarks.tally import KIND
from benchmarks.watchers import Watchers
from threadhold.adapters.http.session import TOO_SLOW
from threadhold.adapters.processes import run

LAG_EVERY: Final = 4
LAGS_MAX: Final = 50_000
LOOK_EVERY_S: Final = 0.02
# As long as none of those that read on late is told anything but that its connection is gone.
LATE_S: Final = 3.0
_COUNTED: Final = f'"kind":"{KIND}"'
_NUMBER: Final = '"n":'
_STAMP: Final = '"stamp":'
_CURSOR: Final = '"cursor":"'


@dataclass(slots=True)
class Report:
    """What all sockets of this process saw.

    Args:
        frames: that were counted.
        missing: frames that were left out, repeated, or came out of order.
        gaps: how often a socket was told that frames are gone for good.
        told, dropped: how often one was cut with the reason that it is too slow, and without a word.
    """

    frames: int = 0
    missing: int = 0
    gaps: int = 0
    told: int = 0
    dropped: int = 0
    lags: list[float] = field(default_factory=list)

    def take(self, stamp: float) -> None:
        """Count a frame that was stamped at `stamp` seconds, and note of some how late they are."""
        self.frames += 1
        if self.frames % LAG_EVERY == 0:
            self.lags.append(now() - stamp)


class Reader:
    """One watcher, over one connection after the other.

    Args:
        url: of the door.
        thread: what it watches.
        report: where it counts.
        buffer: bytes that the kernel keeps for it; 0 for the system's own choice.
    """

    def __init__(self, url: str, thread: str, report: Report, *, buffer: int) -> None:
        self._url = url
        self._thread = thread
        self._report = report
        self._buffer = buffer
        self._cursor = "start"
        self.number = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self.current = asyncio.Event()
        self._stalled = False

    def stall(self) -> None:
        """Read nothing after the next frame, and be cut for that."""
        self._stalled = True
        self.reading.clear()
        self.current.clear()

    async def live(self, slots: asyncio.Semaphore) -> None:
        """Watch for ever; whoever waits for `current` waits for the first head of a connection."""
        while True:
            async with slots:
                connection = await self._connected()
            try:
                await self._read(connection)
            except ConnectionClosed:
                self._count_cut(connection)
            finally:
                connection.transport.abort()

    async def _connected(self) -> ClientConnection:
        where = urlsplit(self._url)
        raw = socket.socket()
        raw.setblocking(False)
        if self._buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
        await asyncio.get_running_loop().sock_connect(raw, (where.hostname, where.port))
        url = f"ws://{where.netloc}/v1/ws"
        # A client that looks whether the server is there would hang up by itself.
        connection = await connect(
            url, sock=raw, proxy=None, open_timeout=30, compression=None, ping_interval=None
        )
        ask = {"id": 1, "op": "watch", "thread": self._thread, "after": self._cursor}
        await connection.send(json.dumps(ask))
        return connection

    async def _read(self, connection: ClientConnection) -> None:
        while True:
            text = await connection.recv()
            assert isinstance(text, str)
            self._take(text)
            if not self.reading.is_set():
                connection.transport.pause_reading()
                await self.reading.wait()
                connection.transport.resume_reading()

    def _take(self, text: str) -> None:
        if _COUNTED in text:
            number = int(text.partition(_NUMBER)[2].partition(",")[0])
            if self.number and number != self.number + 1:
                self._report.missing += abs(number - self.number - 1)
            self.number = number
            self._report.take(float(text.partition(_STAMP)[2].partition(",")[0]))
        elif '"kind":"gap"' in text:
            self._report.gaps += 1
        elif '"kind":"head"' in text and not self._stalled:
            self.current.set()
        if (cursor := text.rpartition(_CURSOR)[2]) != text:
            self._cursor = cursor.partition('"')[0]

    def _count_cut(self, connection: ClientConnection) -> None:
        self._stalled = False
        self.current.clear()
        if (connection.close_code, connection.close_reason) == TOO_SLOW:
            self._report.told += 1
        else:
            self._report.dropped += 1


class Readers:
    """The sockets of this process."""

    def __init__(self, url: str, *, buffer: int) -> None:
        self._url = url
        self._buffer = buffer
        self._report = Report()
        self._readers: list[Reader] = []
        self._tasks = Watchers()
        self._slots = asyncio.Semaphore(CONNECTING_MAX)

    async def watch(self, threads: list[str], each: int) -> None:
        """Enter."""
        for thread in threads * each:
            reader = Reader(self._url, thread, self._report, buffer=self._buffer)
            self._readers.append(reader)
            self._tasks.add(reader.live(self._slots))
        await self._up_to_date()

    async def lags(self) -> dict[str, Any]:
        """Return lags in seconds, and begin anew."""
        lags, self._report.lags = self._report.lags, []
        return {"lags": lags[:: len(lags) // LAGS_MAX + 1]}

    async def stall(self) -> None:
        """Read nothing from the next frame on."""
        for reader in self._readers:
            reader.stall()

    async def read_on(self) -> None:
        """Let half of them read on at once, as long as they may still be told why they were cut; the rest later."""
        for late in (0, 1):
            for reader in self._readers[late::2]:
                reader.reading.set()
            if not late:
                await asyncio.sleep(LATE_S)
        await self._up_to_date()

    async def until(self, number: int) -> None:
        """Wait for a frame."""
        while min(reader.number for reader in self._readers) < number:
            self._tasks.check()
            await asyncio.sleep(LOOK_EVERY_S)

    async def report(self) -> dict[str, Any]:
        """Return what was counted."""
        return asdict(self._report) | {"lags": []}

    async def _up_to_date(self) -> None:
        while not all(reader.current.is_set() for reader in self._readers):
            self._tasks.check()
            await asyncio.sleep(LOOK_EVERY_S)

    async def obey(self) -> None:
        """Take commands."""
        commands = (self.watch, self.lags, self.stall, self.read_on, self.until, self.report)
        await obey({command.__name__: command for command in commands})


async def main(buffer: int) -> None:
    """Obey."""
    await Readers(os.environ[URL_VARIABLE], buffer=buffer).obey()


if __name__ == "__main__":
    run(main(int(sys.argv[1])))
