"""Who is at the other end of a WebSocket: told by a header, by a subprotocol, or by its first message.

A socket is accepted before that is known: a browser that is refused earlier learns nothing but that it failed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from starlette.websockets import WebSocket, WebSocketDisconnect

from threadhold.adapters.http import ops, outgoing
from threadhold.adapters.http.auth import Authenticate, Caller, asked, with_token
from threadhold.adapters.http.doors import Doors
from threadhold.adapters.http.errors import RateLimited, Unauthenticated, refusal
from threadhold.runner.records import Principal

TOKEN_PREFIX: Final = "threadhold.bearer."
"""Before the token in a subprotocol, the only thing that a page can send along with a WebSocket."""
UNAUTHENTICATED: Final = (4401, "unauthenticated")
AUTH_TIMEOUT: Final = (4408, "auth_timeout")
TRY_LATER: Final = (1013, "unavailable")
RATE_LIMITED: Final = (1013, "rate_limited")
BINARY: Final = (1003, "text_frames_only")
CLOSE_S: Final = 1.0
ABORT: Final = "threadhold.abort"
"""The ASGI extension with which our server lets a socket be dropped without waiting for its peer."""


def headers_of(socket: WebSocket) -> Mapping[str, str]:
    """Return the socket's headers, with the token of a subprotocol in its place if no header has one."""
    offered: Sequence[str] = socket.scope.get("subprotocols", [])
    token = next((name.removeprefix(TOKEN_PREFIX) for name in offered if name.startswith(TOKEN_PREFIX)), None)
    if token is None or "authorization" in socket.headers:
        return socket.headers
    return with_token(socket.headers, token)


async def greeted(socket: WebSocket, doors: Doors) -> Caller | None:
    """Return who is at the other end of an accepted socket; None once it is closed, with the reason."""
    headers = headers_of(socket)
    try:
        async with asyncio.timeout(doors.limits.auth_s):
            return await _introduced(socket, doors.authenticate, headers)
    except TimeoutError:
        await close(socket, *AUTH_TIMEOUT)
    except WebSocketDisconnect:
        pass
    except _Refused as refused:
        await close(socket, *refused.close)
    return None


class _Refused(Exception):
    """The socket is to be closed, as nobody could be told why it should stay open."""

    def __init__(self, close: tuple[int, str]) -> None:
        super().__init__(*close)
        self.close = close


async def _introduced(socket: WebSocket, authenticate: Authenticate, headers: Mapping[str, str]) -> Caller:
    """Return who it is, if need be after the message that says so.

    Raises:
        _Refused: nobody who is known here.
        WebSocketDisconnect: the peer has gone.
    """
    try:
        return _caller(authenticate, headers, await asked(authenticate, headers))
    except Unauthenticated as error:
        if error.reason != "missing":
            await _refuse(socket, None, error)
    except Exception as error:
        await _refuse(socket, None, error)
    while True:
        id, token = await _next_token(socket)
        if token is None:
            first = Unauthenticated('say who you are first: {"op": "auth", "token": ...}', reason="missing")
            await socket.send_text(outgoing.refusal_text(id, refusal(first)))
            continue
        shown = with_token(headers, token)
        try:
            found = await asked(authenticate, shown)
        except Exception as error:
            await _refuse(socket, id, error)
        else:
            await socket.send_text(outgoing.result_text(id, introduction(found)))
            return _caller(authenticate, shown, found)


def _caller(authenticate: Authenticate, shown: Mapping[str, str], principal: Principal) -> Caller:
    return Caller(authenticate, shown, replace(principal, interface="websocket"))


def introduction(principal: Principal) -> outgoing.Introduction:
    """Return what a peer is told of itself."""
    roles = tuple(sorted(principal.roles))
    return outgoing.Introduction(principal=principal.id, workspace=principal.workspace, roles=roles)


async def _next_token(socket: WebSocket) -> tuple[ops.OpId, str | None]:
    """Return the id of the next message, and its token if it is the one that has one.

    Raises:
        _Refused: it is no text.
        WebSocketDisconnect: there is none.
    """
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    text = message.get("text")
    if text is None:
        raise _Refused(BINARY)
    try:
        op = ops.parse_op(text)
    except ops.RefusedOp as refused:
        return refused.id, None
    return op.id, op.token if isinstance(op, ops.Auth) else None


async def turn_away(socket: WebSocket, error: RateLimited) -> None:
    """Close the socket of somebody who has enough of them."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await socket.send_text(outgoing.refusal_text(None, refusal(error)))
    except (TimeoutError, WebSocketDisconnect):
        pass
    await close(socket, *RATE_LIMITED)


async def _refuse(socket: WebSocket, id: ops.OpId, error: Exception) -> NoReturn:
    """Say why, and have the socket closed.

    Raises:
        _Refused: always.
    """
    told = refusal(error)
    await socket.send_text(outgoing.refusal_text(id, told))
    raise _Refused(TRY_LATER if told.status >= 500 else UNAUTHENTICATED)


async def close(socket: WebSocket, code: int, reason: str) -> None:
    """Close a socket, and drop it if its peer does not take even that."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await socket.close(code, reason)
    except TimeoutError:
        abort: Callable[[], None] | None = socket.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()
    except (RuntimeError, WebSocketDisconnect):
        return
