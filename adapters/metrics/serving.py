"""Where metrics are read: at `/metrics` of the API, by operators, or on a port of their own, by whoever reaches it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar, Final

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadhold.adapters.http.auth import local_principal
from threadhold.adapters.http.doors import principal_of
from threadhold.adapters.http.gate import LOOPBACK, Gate
from threadhold.adapters.http.server import ApiServer, ListenError, listen
from threadhold.adapters.metrics.process import Metrics
from threadhold.runner.errors import OperatorsOnly

log = structlog.get_logger(__name__)

PATH: Final = "/metrics"


class MetricsPortError(ListenError):
    """Metrics cannot be served where they were told to."""

    code: ClassVar[str] = "cannot_serve_metrics"

    def __str__(self) -> str:
        return (
            f"cannot serve metrics on {self.host} port {self.port}: {self.reason}; set THREADHOLD_METRICS_PORT "
            f"to another one (each process on a machine needs its own, 0 takes any free one), "
            f"or THREADHOLD_METRICS_HOST to an address of this machine"
        )


def metrics_route(metrics: Metrics) -> Route:
    """Return the route of an API replica, for operators: what is there tells how a whole company uses its agents."""

    async def show(request: Request) -> Response:
        if "operator" not in (await principal_of(request)).roles:
            raise OperatorsOnly("read metrics")
        return await _shown(metrics, request)

    return Route(PATH, show, methods=["GET"], include_in_schema=False)


async def _shown(metrics: Metrics, request: Request) -> Response:
    content, media_type = await metrics.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Cache-Control": "no-store", "Content-Type": media_type})


@contextmanager
def metrics_port(host: str, port: int | None) -> Iterator[socket.socket | None]:
    """Listen for metrics for the body of the `with`, before anything else is started; None without a port.

    Raises:
        MetricsPortError: somebody else listens there, or it is not ours to take.
    """
    if port is None:
        yield None
        return
    try:
        listening = listen(host, port)
    except ListenError as error:
        raise MetricsPortError(error.host, error.port, error.reason) from None
    with listening:
        yield listening


@asynccontextmanager
async def serving_metrics(
    metrics: Metrics, listening: socket.socket | None, *, host: str
) -> AsyncIterator[None]:
    """Serve metrics on a port of their own for the body of the `with`, to whoever reaches it; not at all without one.

    In the main loop: when that is blocked nobody is answered, which says more than old numbers would.
    """
    if listening is None:
        yield
        return

    async def show(request: Request) -> Response:
        return await _shown(metrics, request)

    gate = Middleware(
        Gate,
        origins=frozenset(),
        hosts=LOOPBACK if host in LOOPBACK else None,
        authenticate=local_principal,
    )
    app = Starlette(routes=[Route(PATH, show, methods=["GET"])], middleware=[gate])
    server = ApiServer(app, listening=listening, drain=asyncio.Event())
    serving = asyncio.create_task(server.serve(), name="metrics")
    log.info("metrics_ready", url=f"http://{host}:{server.port}{PATH}")
    try:
        yield
    finally:
        server.should_exit = True
        await serving
