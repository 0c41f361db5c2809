"""Requests that wait for runs: as long as `Prefer: wait=N` (RFC 7240) says, and not beyond the life of this process."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Header, Response

from threadhold.adapters.http.doors import Asker, Doors, TheDoors
from threadhold.adapters.http.errors import RateLimited
from threadhold.runner.errors import Closed, RunnerError
from threadhold.runner.operating import WAIT_MAX_S
from threadhold.runner.records import Principal, Run
from threadhold.runner.settle import rests

T = TypeVar("T")

_WAIT: Final = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?=$|[,;])', re.IGNORECASE)
LOCATION: Final = {"Location": {"description": "Where to look next.", "schema": {"type": "string"}}}
APPLIED: Final = {
    "Preference-Applied": {"description": "`wait=N` where it was waited.", "schema": {"type": "string"}}
}


def accepted(model: type[Any]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a route that begins or moves a run, and may wait for it."""
    return {
        202: {"description": "Accepted and kept.", "headers": LOCATION},
        200: {
            "model": model,
            "description": "The run has ended, or waits for people: `Prefer: wait=N` waited for that.",
            "headers": {**LOCATION, **APPLIED},
        },
    }


def wait_of(header: str) -> int | None:
    """Return the seconds that a header asks for, at most a minute; None where it does not."""
    found = _WAIT.search(header)
    return None if found is None else min(int(found[1]), int(WAIT_MAX_S))


class Patience:
    """Waits for a run to rest, for as long as its caller wants to.

    Args:
        doors: of this app.
        by: who waits; it counts among what they watch.
        response: is told that it was waited.
        seconds: how long at most; None for not at all.
    """

    def __init__(self, doors: Doors, by: Principal, response: Response, seconds: int | None) -> None:
        self._doors = doors
        self._by = by
        self._response = response
        self._seconds = seconds

    async def rest(self, run: str) -> Run | None:
        """Return the run once it has ended or waits for people, or as it is when the time is over.

        None where it was not waited, which nobody has a right to: nobody wants to, this principal watches too much, the
        process ends, or nothing can be seen now.
        """
        if self._seconds is None:
            return None
        try:
            with self._doors.quotas.watch(self._by):
                resting = self._doors.runner.rested(run, by=self._by, wait=self._seconds)
                found = await unless_draining(resting, self._doors.drain)
        except (RunnerError, RateLimited):
            return None
        self._response.headers["Preference-Applied"] = f"wait={self._seconds}"
        return found

    async def rested(self, run: str) -> bool:
        """Tell whether the run has ended or waits for people, once it does or the time is over."""
        found = await self.rest(run)
        return found is not None and rests(found.status)


async def unless_draining(work: Coroutine[Any, Any, T], drain: asyncio.Event) -> T:
    """Wait for work that may take a minute, but not beyond the life of this process.

    Raises:
        Closed: the process shuts down; the same call to another replica gets the outcome.
    """
    working, draining = asyncio.create_task(work), asyncio.create_task(drain.wait())
    try:
        await asyncio.wait({working, draining}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Closed
        return working.result()
    finally:
        draining.cancel()
        working.cancel()


async def patience_of(
    response: Response,
    doors: TheDoors,
    by: Asker,
    prefer: Annotated[
        str | None, Header(description="`wait=N`: up to N seconds, 60 at most, until the run rests.")
    ] = None,
) -> Patience:
    """Return how long the sender of a request would wait."""
    return Patience(doors, by, response, None if prefer is None else wait_of(prefer))


ThePatience = Annotated[Patience, Depends(patience_of)]
