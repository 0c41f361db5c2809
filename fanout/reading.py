"""Reading Postgres for watchers: errors are waited out, up to a limit, while the watches stay open."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog

from threadhold.fanout.frame import Frame
from threadhold.fanout.ports import FactLog, Head

log = structlog.get_logger(__name__)

_RETRY_FIRST: Final = 0.05
_RETRY_MAX: Final = 1.0
_READ_MAX: Final = 10.0

_Result = TypeVar("_Result")


class FactsDown(Exception):
    """Postgres has been away for too long, or this process is closing: the watches have to end."""


class FactsReader:
    """The log of facts, as the hub reads it."""

    def __init__(self, facts: FactLog, *, down_max: float) -> None:
        """Read from `facts`, giving up when nothing could be read for `down_max` seconds."""
        self._facts = facts
        self._down_max = down_max
        self._down_since: float | None = None
        self._closed = False

    @property
    def healthy(self) -> bool:
        """Tell whether the last reading succeeded."""
        return self._down_since is None

    def close(self) -> None:
        """Let readings that are being retried give up."""
        self._closed = True

    async def facts(self, thread: str, after: int, limit: int) -> list[Frame]:
        """Return facts of a thread with a seq above `after`, oldest first.

        Raises:
            FactsDown: if Postgres has been away for too long.
        """
        return await self._persist(lambda: self._facts.facts(thread, after=after, limit=limit))

    async def heads(self, threads: Sequence[str]) -> list[Head]:
        """Return the heads of these threads.

        Raises:
            FactsDown: if Postgres has been away for too long.
        """
        return await self._persist(lambda: self._facts.heads(threads))

    async def _persist(self, read: Callable[[], Awaitable[_Result]]) -> _Result:
        delay = _RETRY_FIRST
        while True:
            try:
                async with asyncio.timeout(_READ_MAX):
                    result = await read()
            except Exception as error:  # the port does not say which errors its driver has
                self._note_failure(error)
            else:
                self._note_success()
                return result
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RETRY_MAX)

    def _note_failure(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._down_since is None:
            self._down_since = now
            log.warning("facts_unavailable", error=f"{type(error).__name__}: {error}")
        if self._closed:
            raise FactsDown("this process is shutting down") from error
        if now - self._down_since >= self._down_max:
            raise FactsDown("postgres has not answered for too long") from error

    def _note_success(self) -> None:
        if self._down_since is not None:
            log.info("facts_available")
        self._down_since = None
