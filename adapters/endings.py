"""How a process learns that it is to end."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of these is over; the others are cancelled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def end_when_told(ending: asyncio.Event) -> None:
    """Let SIGINT and SIGTERM set the event."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
