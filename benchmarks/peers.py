"""Peers that ask over one connection, one question after the other: as little of HTTP and WebSocket as is needed.

They share the machine with the server that is measured, so they cost a fraction of what a client library does.
"""

import asyncio
import json
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from benchmarks.errors import BenchError

LINE_BYTES_MAX: Final = 1024 * 1024
_HEAD_END: Final = b"\r\n\r\n"
# A frame of text that is whole and masked, with a mask that changes nothing.
_TEXT: Final = 0x81
_MASKED: Final = 0x80
_TWO_BYTES: Final = 126


class Peer(Protocol):
    """Somebody who asks."""

    async def ask(self, question: bytes) -> bytes:
        """Ask, and return the body of the answer."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class Wire:
    """A connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect to the host and port of a URL."""
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port, limit=LINE_BYTES_MAX))

    def close(self) -> None:
        """Hang up."""
        self.writer.transport.abort()


class HttpPeer(Wire):
    """Asks by requests, each made by `request`."""

    async def ask(self, question: bytes) -> bytes:
        """Send a request and return the body of its response.

        Raises:
            BenchError: if the response is no success.
        """
        self.writer.write(question)
        head = (await self.reader.readuntil(_HEAD_END)).lower()
        body = await self._body(head)
        if not head.startswith(b"http/1.1 2"):
            raise BenchError(f"a door refused what it was asked: {(head + body)[:600].decode()}")
        return body

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            return await self._chunks()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        return await self.reader.readexactly(int(length))

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        return body


class SocketPeer(Wire):
    """Asks by messages of a WebSocket, each made by `message`."""

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and upgrade.

        Raises:
            BenchError: if the server does not upgrade.
        """
        peer = await super().open(url)
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        peer.writer.write(request(url, "GET", "/v1/ws", headers=upgrade))
        head = await peer.reader.readuntil(_HEAD_END)
        if b" 101 " not in head:
            raise BenchError(f"a door opens no socket: {head.decode()}")
        return peer

    async def ask(self, question: bytes) -> bytes:
        """Send a message and return the next one."""
        self.writer.write(question)
        while True:
            kind, size = await self.reader.readexactly(2)
            if size == _TWO_BYTES:
                size = int.from_bytes(await self.reader.readexactly(2))
            text = await self.reader.readexactly(size)
            if kind == _TEXT:
                return text


def request(
    url: str, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    """Return the bytes of a request to the server of a URL."""
    fields = {"Host": urlsplit(url).netloc} | (headers or {})
    if body:
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + _HEAD_END + body


def message(value: dict[str, Any]) -> bytes:
    """Return the bytes of a message of less than 64 KB."""
    text = json.dumps(value).encode()
    size = (
        bytes([_MASKED | len(text)])
        if len(text) < _TWO_BYTES
        else bytes([_MASKED | _TWO_BYTES]) + len(text).to_bytes(2)
    )
    return bytes([_TEXT]) + size + bytes(4) + text
