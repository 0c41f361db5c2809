"""The web application: all doors on one Runner."""

import asyncio
from typing import Final

from fastapi import FastAPI
from fastapi.middleware import Middleware

from threadhold import __version__
from threadhold.adapters.http import (
    executions,
    export,
    grants,
    members,
    probes,
    requests,
    rest,
    reviewing,
    runs,
    spend,
    sse,
    websocket,
    workers,
)
from threadhold.adapters.http.auth import Authenticate, local_principal
from threadhold.adapters.http.doors import Doors, Limits
from threadhold.adapters.http.gate import OPEN_PATHS, Gate
from threadhold.adapters.http.health import HealthCheck
from threadhold.adapters.http.openapi import describe, operation_id
from threadhold.adapters.http.problem import answer_with_problems
from threadhold.adapters.http.quotas import Allowance, Quotas
from threadhold.adapters.mcp.door import mcp_route
from threadhold.adapters.metrics.process import Metrics
from threadhold.adapters.metrics.serving import metrics_route
from threadhold.adapters.metrics.traffic import Counted
from threadhold.adapters.page import serving as chat_page
from threadhold.runner.service import Runner

ROUTERS: Final = tuple(
    door.router
    for door in (
        probes,
        rest,
        members,
        executions,
        runs,
        reviewing,
        export,
        requests,
        grants,
        spend,
        workers,
        sse,
        websocket,
    )
)


def create_api(
    runner: Runner,
    *,
    health: HealthCheck,
    drain: asyncio.Event,
    authenticate: Authenticate = local_principal,
    origins: frozenset[str] = frozenset(),
    hosts: frozenset[str] | None = None,
    limits: Limits | None = None,
    allowance: Allowance | None = None,
    page: bool = False,
    metrics: Metrics | None = None,
    show_metrics: bool = False,
) -> FastAPI:
    """Return an ASGI app with REST, server-sent events, WebSocket, MCP and health on a Runner.

    Args:
        runner: does the work; closing it is the caller's business.
        health: tells what is wrong with the servers behind this process; may be async.
        drain: set it when the process begins to shut down: streams then end and say so.
        authenticate: turns the headers of a request into a principal; by default everybody is the same one.
        origins: web origins (`https://chat.example.com`) whose pages may call, besides this host's own.
        hosts: host names to answer for; None for any. Name `LOOPBACK` where only this machine may call.
        limits: the bounds of streams and sockets.
        allowance: what each principal may have of this process; not bounded by default.
        page: whether the chat page is at `/`.
        metrics: counts the requests; nobody does by default.
        show_metrics: whether operators find them at `/metrics`.
    """
    counted = [] if metrics is None else [Middleware(Counted, traffic=metrics.traffic)]
    open_paths = OPEN_PATHS | (chat_page.PATHS if page else frozenset())
    app = FastAPI(
        title="threadhold",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        middleware=[
            *counted,
            Middleware(Gate, origins=origins, hosts=hosts, authenticate=authenticate, open_paths=open_paths),
        ],
    )
    app.state.doors = Doors(
        runner=runner,
        authenticate=authenticate,
        health=health,
        drain=drain,
        limits=limits or Limits(),
        quotas=Quotas(allowance or Allowance()),
    )
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(mcp_route(app.state.doors))
    if metrics is not None:
        metrics.doors(app.state.doors.stats)
        if show_metrics:
            app.router.routes.append(metrics_route(metrics))
    if page:
        app.router.routes.extend(chat_page.routes())
    describe(app, runner.agents)
    answer_with_problems(app, open_paths=None if authenticate is local_principal else OPEN_PATHS)
    return app
