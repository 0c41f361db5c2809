"""The script that is played over every door, and what a door has to do for it.

Gates order what would be a matter of luck: the second of two parallel calls returns first, the steer comes while the
first one still holds, and the second run is in the middle of a sentence when it is stopped.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.support.watching import People
from tests.system.conftest import System

AGENT: Final = "scripted"
FIRST: Final = (
    'spell ["Grüße, ", "naïve ", "💬"] | call hold {{"gate": "{one}"}} | call hold {{"gate": "{two}"}}'
    ' ;; say Now the money. | call pay {{"amount": 50, "to": "bob"}}'
)
STEER: Final = "Mind the gap."
SECOND: Final = 'spell ["Half ", "a ", "senten"] | hold {never} | say unsaid'
CUT_OFF: Final = "Half a senten"


class Door(Protocol):
    """What the script does through a door, and how it waits for what the door shows."""

    async def send(self, content: str) -> None:
        """Send to the thread; the first time, begin it and watch it from its start."""

    async def approve(self) -> None:
        """Approve what the run waits for."""

    async def stop(self) -> None:
        """Stop the run that the last message has started."""

    async def shows(self, fact: str, times: int = 1) -> None:
        """Return when the door has shown so many facts of a kind, and all that came before."""

    async def says(self, text: str) -> None:
        """Return when the door has shown this text, live."""

    def transcript(self) -> str:
        """Return all that was said to the door and all that it showed, as it came."""


# Opens a door of a stack for the length of a block.
Opened = Callable[[System, People], AbstractAsyncContextManager[Door]]


@asynccontextmanager
async def gates(system: System, door: str) -> AsyncIterator[dict[str, Path]]:
    """Yield the gates of one door by name; where workers work, so that a script names them by a short word."""
    named = {name: system.starter.folder / f"{door}.{name}" for name in ("one", "two", "never")}
    try:
        yield named
    finally:
        for gate in named.values():
            gate.touch()


async def play(door: Door, gate: dict[str, Path]) -> None:
    """Play the script."""
    words = {name: path.name for name, path in gate.items()}
    await door.send(FIRST.format(**words))
    await door.shows("tool_called", 2)
    gate["two"].touch()
    await door.shows("tool_returned")
    await door.send(STEER)
    await door.shows("message_accepted", 2)
    gate["one"].touch()
    await door.shows("paused")
    await door.approve()
    await door.shows("run_ended")
    await door.send(SECOND.format(**words))
    await door.says(CUT_OFF)
    await door.stop()
    await door.shows("run_ended", 2)
