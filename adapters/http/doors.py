"""What all doors of one app share: the Runner behind them, who asks, and the bounds."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from threadhold.adapters.http.auth import Authenticate
from threadhold.adapters.http.health import HealthCheck
from threadhold.runner.records import Principal
from threadhold.runner.service import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of streams and sockets; times in seconds.

    Args:
        ops: WebSocket operations in flight on one socket.
        watches: threads watched on one socket.
        outbox_frames, outbox_chars: what waits for one slow peer before its watches are held back.
        write_s: how long a peer may take nothing before it is cut off.
        ping_s: silence on an event stream after which a comment is sent.
        recheck_s: how often an open watch is checked against who may see the thread.
        goodbye_s: how long operations may go on after their socket has gone.
    """

    ops: int = 64
    watches: int = 100
    outbox_frames: int = 256
    outbox_chars: int = 1024 * 1024
    write_s: float = 10.0
    ping_s: float = 15.0
    recheck_s: float = 60.0
    goodbye_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What a route needs; `drain` is set when the process begins to shut down."""

    runner: Runner
    authenticate: Authenticate
    health: HealthCheck
    drain: asyncio.Event
    limits: Limits


async def doors_of(connection: HTTPConnection) -> Doors:
    """Return the doors of the app that a request or a socket came to."""
    doors: Doors = connection.app.state.doors
    return doors


async def principal_of(connection: HTTPConnection) -> Principal:
    """Return who sent the request."""
    return (await doors_of(connection)).authenticate(connection.headers)


async def runner_of(connection: HTTPConnection) -> Runner:
    """Return the Runner that does the work."""
    return (await doors_of(connection)).runner


Asker = Annotated[Principal, Depends(principal_of)]
TheDoors = Annotated[Doors, Depends(doors_of)]
TheRunner = Annotated[Runner, Depends(runner_of)]
