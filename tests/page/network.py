"""A network between a browser and a server that a test cuts and mends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Network:
    """Forwards connections on a port of its own; while it is cut there are none.

    Args:
        target: the port of the server.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.refused = 0

    def cut(self) -> None:
        """Break all connections, and those to come."""
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self._is_cut:
            self.refused += 1
            writer.transport.abort()
            return
        with suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", self._target)
            ours = {writer, forth}
            self._open |= ours
            await asyncio.gather(_copy(reader, forth), _copy(back, writer))
            self._open -= ours


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def network(target: int) -> AsyncIterator[tuple[Network, int]]:
    """Forward to a port for as long as the block lasts; yields the network and its port."""
    made = Network(target)
    server = await asyncio.start_server(made.forward, "127.0.0.1", 0)
    try:
        yield made, server.sockets[0].getsockname()[1]
    finally:
        made.cut()
        server.close()
