"""Looks at the runs of a replica: once, or again and again, also while the replica is away for a moment."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn

from threadhold.adapters.cli.board import Away, Board, Seen
from threadhold.adapters.client import Client, ClientError
from threadhold.runner.machine import RunStatus, is_active
from threadhold.runner.records import Run, Why

EVERY_S: Final = 2.0
# A replica that hangs is as good as one that is away, and whoever watches wants to know.
LOOK_S_MAX: Final = 10.0
# How many runs are looked at more closely at once.
LOOKS: Final = 8
# Of gateways before a replica, and of a replica whose fault passes.
_FAULTS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which runs are looked at."""

    status: Sequence[RunStatus]
    agent: str | None
    principal: str | None
    limit: int


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


async def look(client: Client, wanted: Wanted) -> Seen:
    """Return the runs, and what holds those that are in progress. Raises ClientError."""
    runs = await client.runs(
        status=[each.value for each in wanted.status],
        agent=wanted.agent,
        principal=wanted.principal,
        limit=wanted.limit,
    )
    known = await reasons(client, runs)
    return Seen(
        runs=[known[run.id].run if run.id in known else run for run in runs], known=known, at=utc_now()
    )


async def reasons(client: Client, runs: Sequence[Run]) -> dict[str, Why]:
    """Look more closely at the runs that had not ended; one may have ended since."""
    turn = asyncio.Semaphore(LOOKS)

    async def explained(run: Run) -> Why | None:
        async with turn:
            try:
                return await client.why(run.id)
            except ClientError as error:
                # An approver loses sight of a run whose request has been answered meanwhile.
                if error.code != "not_found":
                    raise
                return None

    tasks = [asyncio.create_task(explained(run)) for run in runs if is_active(run.status)]
    try:
        whys = await asyncio.gather(*tasks)
    finally:
        # When one has failed, the others would go on with a client that is closed, and leave connections open.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {why.run.id: why for why in whys if why is not None}


async def watch(
    look: Callable[[], Awaitable[Seen]],
    show: Callable[[Board], None],
    *,
    limit: int,
    now: Callable[[], datetime] = utc_now,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> NoReturn:
    """Look and show, for ever.

    Args:
        look: finds the runs.
        show: is given what is to be seen, after each look.
        limit: how many runs `look` finds at most.
        now: tells the time.
        pause: lets so many seconds pass.

    Raises:
        ClientError: the first look failed, or the replica refuses what it allowed before.
    """
    seen: Seen | None = None
    away: Away | None = None
    while True:
        try:
            seen, away = await _in_time(look), None
        except ClientError as error:
            if seen is None or not (error.passing or (error.status or 0) >= _FAULTS):
                raise
            away = Away(error=error, since=away.since if away else now())
        show(Board(seen=seen, away=away, now=now(), every=EVERY_S, limit=limit))
        await pause(EVERY_S)


async def _in_time(look: Callable[[], Awaitable[Seen]]) -> Seen:
    try:
        async with asyncio.timeout(LOOK_S_MAX):
            return await look()
    except TimeoutError:
        text = f"no answer within {LOOK_S_MAX:g} s; is the server overloaded, or frozen?"
        raise ClientError("unreachable", text) from None
