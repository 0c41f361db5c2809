"""What a process does again and again beside its work."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)


async def every(seconds: float, act: Callable[[], Awaitable[None]], failed: str) -> None:
    """Do something at intervals for ever; a failure is logged once per outage.

    Args:
        seconds: between the end of one time and the beginning of the next.
        act: what.
        failed: the event of the log that says that it fails.
    """
    failing = False
    while True:
        await asyncio.sleep(seconds)
        try:
            await act()
            failing = False
        except Exception as error:
            if not failing:
                log.warning(failed, error=type(error).__name__, detail=str(error)[:200])
            failing = True
