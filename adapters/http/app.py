"""The web application: all doors on one Runner."""

import asyncio

from fastapi import FastAPI
from fastapi.middleware import Middleware

from threadhold import __version__
from threadhold.adapters.http import probes, rest, sse, websocket
from threadhold.adapters.http.auth import Authenticate, local_principal
from threadhold.adapters.http.doors import Doors, Limits
from threadhold.adapters.http.gate import Gate
from threadhold.adapters.http.health import HealthCheck
from threadhold.adapters.http.problem import answer_with_problems
from threadhold.runner.service import Runner


def create_api(
    runner: Runner,
    *,
    health: HealthCheck,
    drain: asyncio.Event,
    authenticate: Authenticate = local_principal,
    origins: frozenset[str] = frozenset(),
    hosts: frozenset[str] | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """Return an ASGI app with REST, server-sent events, WebSocket and health on a Runner.

    Args:
        runner: does the work; closing it is the caller's business.
        health: tells what is wrong with the servers behind this process; may be async.
        drain: set it when the process begins to shut down: streams then end and say so.
        authenticate: turns the headers of a request into a principal.
        origins: web origins (`https://chat.example.com`) whose pages may call, besides this host's own.
        hosts: host names to answer for; None for any. Name `LOOPBACK` where only this machine may call.
        limits: the bounds of streams and sockets.
    """
    app = FastAPI(
        title="threadhold",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Gate, origins=origins, hosts=hosts)],
    )
    app.state.doors = Doors(
        runner=runner, authenticate=authenticate, health=health, drain=drain, limits=limits or Limits()
    )
    for door in (probes, rest, sse, websocket):
        app.include_router(door.router)
    answer_with_problems(app)
    return app
