"""What all doors of one app share: the Runner behind them, who asks, and the bounds."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Header, Query
from starlette.requests import HTTPConnection

from threadhold.adapters.http.auth import Authenticate, asked, through
from threadhold.adapters.http.gate import PRINCIPAL
from threadhold.adapters.http.health import HealthCheck
from threadhold.adapters.http.quotas import Quotas
from threadhold.adapters.http.schemas import KEY_SCHEMA
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
        auth_s: how long a socket may take to say who asks.
        recheck_s: how often an open stream or socket is checked: whose it is, and who may see what it watches.
        goodbye_s: how long operations may go on after their socket has gone.
    """

    ops: int = 64
    watches: int = 100
    outbox_frames: int = 256
    outbox_chars: int = 1024 * 1024
    write_s: float = 10.0
    ping_s: float = 15.0
    auth_s: float = 10.0
    recheck_s: float = 60.0
    goodbye_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorStats:
    """What the doors are doing: open WebSockets, peers that were cut off by door, refusals by what was asked for."""

    sockets: int
    cut: Mapping[str, int]
    limited: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What a route needs; `drain` is set when the process begins to shut down.

    `cut` counts the peers that took nothing and were cut off, by door.
    """

    runner: Runner
    authenticate: Authenticate
    health: HealthCheck
    drain: asyncio.Event
    limits: Limits
    quotas: Quotas
    cut: Counter[str] = field(default_factory=Counter)

    def stats(self) -> DoorStats:
        """Return what the doors are doing."""
        quotas = self.quotas
        return DoorStats(sockets=quotas.open_sockets, cut=dict(self.cut), limited=dict(quotas.refused))


async def doors_of(connection: HTTPConnection) -> Doors:
    """Return the doors of the app that a request or a socket came to."""
    doors: Doors = connection.app.state.doors
    return doors


async def principal_of(connection: HTTPConnection) -> Principal:
    """Return who sent the request: the gate has found out, if it is one that it lets through only then."""
    found: Principal | None = connection.scope.get(PRINCIPAL)
    if found is not None:
        return found
    asking = (await doors_of(connection)).authenticate
    return through(await asked(asking, connection.headers), connection.url.path)


async def sender_of(connection: HTTPConnection) -> Principal:
    """Return who sends a message, once it is counted.

    Raises:
        RateLimited: that was one too many.
    """
    by = await principal_of(connection)
    (await doors_of(connection)).quotas.message(by)
    return by


async def runner_of(connection: HTTPConnection) -> Runner:
    """Return the Runner that does the work."""
    return (await doors_of(connection)).runner


Asker = Annotated[Principal, Depends(principal_of)]
Sender = Annotated[Principal, Depends(sender_of)]
TheDoors = Annotated[Doors, Depends(doors_of)]
TheRunner = Annotated[Runner, Depends(runner_of)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Repeat a request with its key: it happens once.",
        json_schema_extra=KEY_SCHEMA,
    ),
]
PageSize = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[UUID | None, Query(description="The `next_cursor` of the page before.")]
