"""The HTTP server: uvicorn on a socket of our own, with an orderly goodbye and no patience with the dead."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from threadhold.adapters.http.errors import BODY_BYTES_MAX
from threadhold.adapters.http.greeting import ABORT

BACKLOG: Final = 2048
PORT_MAX: Final = 65_535
GRACEFUL_S: Final = 3
GOODBYE_S: Final = 1.5
_PEER_TIMEOUT_MS: Final = 30_000
_SEND_BUFFER_BYTES: Final = 64 * 1024


class ListenError(Exception):
    """The server cannot listen where it was told to."""

    code: ClassVar[str] = "cannot_listen"

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, reason)
        self.host = host
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot listen on {self.host} port {self.port}: {self.reason}; choose another host or port"


class PortInUse(ListenError):
    """Somebody else listens there."""

    code = "port_in_use"

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, "the port is in use")

    def __str__(self) -> str:
        return (
            f"port {self.port} on {self.host} is in use; stop what listens there, "
            f"or choose another port with --port (0 takes any free one)"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already listens, before anything else is started for it.

    Args:
        host: a name or an address of this machine.
        port: 0 takes any free one.

    Raises:
        PortInUse: somebody else listens there.
        ListenError: the host is not of this machine, or the port is not ours to take.
    """
    if not 0 <= port <= PORT_MAX:
        # The resolver would quietly take the rest of a division.
        raise ListenError(host, port, f"a port is a number from 0 to {PORT_MAX}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(host, port, _reason(error)) from None
    try:
        _prepare(listening)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from None
        raise ListenError(host, port, _reason(error)) from None
    return listening


def _reason(error: OSError) -> str:
    """Return an error's text without its number."""
    return (error.strerror or str(error)).lower()


def _prepare(listening: socket.socket) -> None:
    """Set what accepted connections inherit."""
    listening.setblocking(False)
    if os.name == "posix":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform == "linux":
        # Frees what a peer holds that is connected but takes nothing; nothing above TCP can do that.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PEER_TIMEOUT_MS)
        # A stalled peer ties up this much memory of the kernel, not the megabytes that it would grow to.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)


class AbortingWS(WebSocketsSansIOProtocol):
    """Really drops a dead peer: a plain close would wait until it has taken all that was written for it."""

    def keepalive_timeout(self) -> None:
        """Close, and a second later abort."""
        super().keepalive_timeout()
        self.loop.call_later(1.0, self.transport.abort)

    def handle_connect(self, event: Any) -> None:
        """Give the app the means to abort as well."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            cast(dict[str, Any], self.scope["extensions"])[ABORT] = self.transport.abort


class _Server(uvicorn.Server):
    """Says goodbye to streams before uvicorn cuts them."""

    def __init__(self, config: uvicorn.Config, *, drain: asyncio.Event, own_signals: bool) -> None:
        super().__init__(config)
        self._drain = drain
        self._own_signals = own_signals

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to whoever runs this server beside other things."""
        if not self._own_signals:
            yield
            return
        with super().capture_signals():
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nobody new, let streams end by themselves for a moment, then end what is left."""
        for server in self.servers:
            server.close()
        self._drain.set()
        if self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=GOODBYE_S)
        await super().shutdown(sockets)


class ApiServer:
    """Serves an app on a socket from `listen`.

    Args:
        app: the ASGI app.
        listening: where; the server closes it in the end.
        drain: set first when the server shuts down; the same event that the app got.
        own_signals: True makes SIGINT and SIGTERM end it; otherwise the caller sets `should_exit`.
    """

    def __init__(
        self, app: ASGIApp, *, listening: socket.socket, drain: asyncio.Event, own_signals: bool = False
    ) -> None:
        self._listening = listening
        self._port: int = listening.getsockname()[1]
        config = uvicorn.Config(
            app,
            ws=AbortingWS,
            ws_max_size=BODY_BYTES_MAX,
            # The memory of a compressor per socket is worth more than the bytes it saves.
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # Balancers drop idle connections after a minute; better they than we, who might cut a request.
            timeout_keep_alive=65,
            timeout_graceful_shutdown=GRACEFUL_S,
        )
        self._server = _Server(config, drain=drain, own_signals=own_signals)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    @property
    def should_exit(self) -> bool:
        """Whether the server is to end; set it to True and `serve` returns within a few seconds."""
        return self._server.should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._server.should_exit = value

    async def serve(self) -> None:
        """Serve until `should_exit` is set, or a signal comes where they are ours."""
        try:
            await self._server.serve(sockets=[self._listening])
        finally:
            self._listening.close()
