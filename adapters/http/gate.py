"""What every request passes first: who calls, and whether they may at all; how much is sent; what happens on a bug.

Plain ASGI, outside of the framework, so that nothing in it can answer in another form.
"""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadhold.adapters.http.auth import Authenticate, asked, through
from threadhold.adapters.http.cors import allowing, is_preflight, preflight_response
from threadhold.adapters.http.errors import (
    BODY_BYTES_MAX,
    BodyTooLarge,
    DoorError,
    HostRefused,
    OriginRefused,
    refusal,
)
from threadhold.adapters.http.problem import problem_response
from threadhold.runner.errors import Closed

# A client that is still sending may not read the answer; so this much more is taken and thrown away first.
_SPILL_BYTES_MAX: Final = 8 * 1024 * 1024
_SPILL_S: Final = 5.0
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/openapi.json", "/v1/ws/schema.json"})
"""What needs no principal. Everything else does, also what does not exist: strangers learn nothing of it."""
PRINCIPAL: Final = "threadhold.principal"
"""Where in a request's scope the gate notes who sent it."""


class Gate:
    """Wraps the app.

    Args:
        app: what is behind the gate.
        origins: web origins whose pages may call, besides those of this host and of this machine, and read the answers.
        hosts: the names that this server answers for; None for any. A private server names those of the
            loopback interface, so that no web page can reach it by pointing a name of its own there.
        authenticate: tells who sent a request. A socket is asked once it is open, since it could not be told why not.
        open_paths: what needs no principal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        origins: frozenset[str],
        hosts: frozenset[str] | None,
        authenticate: Authenticate,
        open_paths: frozenset[str] = OPEN_PATHS,
    ) -> None:
        self._app = app
        self._open_paths = open_paths
        self._authenticate = authenticate
        self._origins = origins
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused: Exception | None = self._refused(headers)
        if scope["type"] == "http":
            send = allowing(send, headers.get("origin") if refused is None else None)
            if refused is None and is_preflight(scope, headers):
                await preflight_response(headers)(scope, receive, send)
                return
            refused = refused or _too_large(headers) or await self._unknown(scope, headers)
        if refused is None:
            await self._pass(scope, receive, send)
        elif scope["type"] == "websocket":
            # Before accepting, a close is an HTTP 403.
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _spill(receive)
            await problem_response(refusal(refused))(scope, receive, send)

    def _refused(self, headers: Headers) -> DoorError | None:
        host = headers.get("host", "")
        if self._hosts is not None and _name(f"//{host}") not in self._hosts:
            return HostRefused(host)
        origin = headers.get("origin")
        if origin is None or self._is_friend(origin, host):
            return None
        return OriginRefused(origin)

    async def _unknown(self, scope: Scope, headers: Headers) -> Exception | None:
        """Note who sent a request, before anything of its body is looked at; return why that cannot be told."""
        if scope["path"] in self._open_paths:
            return None
        try:
            scope[PRINCIPAL] = through(await asked(self._authenticate, headers), scope["path"])
        except asyncio.CancelledError:
            return Closed()  # as in `_pass`
        except Exception as error:
            return error
        return None

    def _is_friend(self, origin: str, host: str) -> bool:
        if origin in self._origins or _name(origin) in LOOPBACK:
            return True
        return origin.partition("://")[2].lower() == host.lower() != ""

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def sending(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._app(scope, _bounded(receive) if scope["type"] == "http" else receive, sending)
        except asyncio.CancelledError:
            # This process has to end, and cannot know what becomes of the request: to ask again elsewhere is right.
            if answered or scope["type"] != "http":
                raise
            await problem_response(refusal(Closed()))(scope, receive, send)
        except Exception as error:
            told = refusal(error)
            if answered:
                return  # the server cuts the connection, so nobody takes what was sent for all of it
            if scope["type"] == "http":
                await problem_response(told)(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1011})


def _name(url: str) -> str | None:
    """Return the host's name in a URL or an origin, without port and brackets."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _too_large(headers: Headers) -> BodyTooLarge | None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > BODY_BYTES_MAX:
        return BodyTooLarge(BODY_BYTES_MAX)
    return None


def _bounded(receive: Receive) -> Receive:
    """Return a `receive` that refuses a body without a length once it has grown too large."""
    size = 0

    async def receiving() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            if message.get("more_body", False):
                await _spill(receive)
            # Of what is raised while it reads a body, the framework lets only this one through.
            raise HTTPException(413)
        return message

    return receiving


async def _spill(receive: Receive) -> None:
    """Take the rest of a body, within bounds, and throw it away."""
    size = 0
    try:
        async with asyncio.timeout(_SPILL_S):
            while size < _SPILL_BYTES_MAX:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
