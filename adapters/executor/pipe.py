"""What an executor and its child processes say to each other: JSON values, each behind its length."""

import asyncio
import json
import socket
import struct
from typing import Any, Final

_LENGTH: Final = struct.Struct("!I")


def packed(value: Any) -> bytes:
    """Return a value as it goes over the pipe."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return _LENGTH.pack(len(body)) + body


async def received(reader: asyncio.StreamReader) -> Any:
    """Return the next value.

    Raises:
        asyncio.IncompleteReadError, OSError: the other side has gone.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return json.loads(await reader.readexactly(length))


def taken(connection: socket.socket) -> Any:
    """Return the next value, for a thread that waits for it; None when the other side has gone."""
    head = _exactly(connection, _LENGTH.size)
    body = None if head is None else _exactly(connection, _LENGTH.unpack(head)[0])
    return None if body is None else json.loads(body)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    pieces = b""
    while len(pieces) < size:
        try:
            piece = connection.recv(size - len(pieces))
        except OSError:
            return None
        if not piece:
            return None
        pieces += piece
    return pieces
