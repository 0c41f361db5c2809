"""Whether this process lives, and whether it can do its work."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

CHECK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is wrong with the servers behind this process; None where nothing is."""

    postgres: str | None = None
    redis: str | None = None


HealthCheck = Callable[[], Health | Awaitable[Health]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether to send requests here. Without Redis everything works, only later: degraded, but ready."""

    ready: bool
    status: Literal["ok", "degraded", "unavailable", "draining"]
    postgres: str
    redis: str


def readiness(health: Health, *, draining: bool) -> Readiness:
    """Return what a health means for whoever distributes requests."""
    ready = health.postgres is None and not draining
    status: Literal["ok", "degraded", "unavailable", "draining"]
    if draining:
        status = "draining"
    elif not ready:
        status = "unavailable"
    else:
        status = "ok" if health.redis is None else "degraded"
    return Readiness(ready=ready, status=status, postgres=health.postgres or "ok", redis=health.redis or "ok")


async def checked(check: HealthCheck, *, within: float = CHECK_S) -> Health:
    """Return the health, or that it could not be told within so many seconds."""
    try:
        async with asyncio.timeout(within):
            found = check()
            return await found if inspect.isawaitable(found) else found
    except TimeoutError:
        return Health(postgres=f"no answer within {within:g} s")
