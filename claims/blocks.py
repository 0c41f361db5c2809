"""Finds out who blocks a process's main loop, even when the blocker lets nothing else run for a while."""

import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

from threadhold.claims.clock import Clock, now
from threadhold.claims.doing import Blocker, Doing

log = structlog.get_logger(__name__)

BLOCKED_AFTER_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.5
_FRAMES_MAX: Final = 200
# Who calls a tool: the agent library, or the thread in which it lets plain functions run.
_CALLERS: Final = ("/pydantic_ai/", "/anyio/", "/concurrent/futures/")
# Who runs a loop: whoever called that waits for its end, be it the application or the command's own script.
_RUNNERS: Final = ("run", "run_forever", "run_until_complete")


@dataclass(frozen=True, slots=True)
class Frame:
    """One call on a thread's stack."""

    file: str
    line: int
    function: str


class Lookout:
    """A thread that looks whether the main loop still ticks, and says in whose code it is if it does not.

    It reads the stacks under the interpreter's own lock, as any code may: reading them from outside, as a watchdog of
    the interpreter does, can crash a process that is merely slow. Code that never lets go of the lock is therefore
    named as soon as it does so, at its end. It may be gone by the time that somebody gets the lock to look; then the
    call is named that was under way.

    Args:
        say: called once per block with how long it has lasted, in seconds, and who it is.
        clock: seconds that only grow.
    """

    def __init__(self, say: Callable[[float, Blocker | None], None], *, clock: Clock = now) -> None:
        self._say = say
        self._clock = clock
        self.doing: Final = Doing(clock=clock)
        self._libraries = library_folders()
        self._ticked = clock()
        self._looked = self._ticked
        self._said = 0.0
        self._loop = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-lookout", daemon=True)

    def start(self) -> None:
        """Begin; call it in the thread of the main loop."""
        self._loop = threading.get_ident()
        self.tick()
        self._thread.start()

    def tick(self) -> None:
        """Say that the main loop runs; if it has not for long, another thread may have kept the interpreter.

        That one is where it let go, for as long as the loop runs on; the lookout may come too late to see it there.
        """
        ticked, self._ticked = self._ticked, self._clock()
        late = self._ticked - ticked
        if late < BLOCKED_AFTER_S or ticked == self._said:
            return
        stacks = _stacks()
        stacks.pop(self._loop, None)
        if (found := self._found(stacks, self.doing.through(ticked, self._ticked))) is not None:
            self._looked = self._ticked
            self._say(late, found)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Say who blocks, once per block."""
        ticked, looked = self._ticked, self._looked
        self._looked = self._clock()
        # Whoever kept the interpreter kept this thread as well, and the loop may have ticked first since.
        late = self._looked - min(ticked, looked)
        if late < BLOCKED_AFTER_S or ticked == self._said:
            return
        self._said = ticked
        stacks = _stacks()
        stacks.pop(threading.get_ident(), None)
        self._say(late, self._found(stacks, self.doing.through(self._looked - late, self._looked)))

    def _found(self, stacks: Mapping[int, Sequence[Frame]], under_way: Blocker | None) -> Blocker | None:
        return blocker(stacks, thread=self._loop, libraries=self._libraries, under_way=under_way)


def say_blocked(seconds: float, who: Blocker | None) -> None:
    """Log who blocks the main loop."""
    log.warning("loop_blocked", seconds=round(seconds, 1), **(asdict(who) if who is not None else {}))


def blocker(
    stacks: Mapping[int, Sequence[Frame]],
    *,
    thread: int,
    libraries: Sequence[str],
    under_way: Blocker | None = None,
) -> Blocker | None:
    """Return who blocks the main loop.

    A plain function that an agent runs in another thread blocks the loop as well if it keeps the interpreter's lock:
    when the loop's own thread is in nobody's code, that of the others counts.

    Args:
        stacks: each thread's calls, innermost first.
        thread: the main loop's.
        libraries: folders of code that is not the application's.
        under_way: who it is if no code of the application is to be seen.
    """
    loop = _within(stacks.get(thread, []))
    others = (stack for id, stack in stacks.items() if id != thread)
    found = (_named(stack, libraries) for stack in (loop, *others))
    named = next((one for one in found if one is not None), under_way)
    if named is not None or not loop:
        return named
    return Blocker(f"{loop[0].file}:{loop[0].line}", loop[0].function, None)


def _within(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Return the calls that a loop has made, without those that have led to it."""
    for at, frame in enumerate(stack):
        if "/asyncio/" in frame.file and frame.function in _RUNNERS:
            return stack[: at + 1]
    return stack


def library_folders() -> list[str]:
    """Return where the standard library, installed packages and this one are."""
    paths = sysconfig.get_paths()
    here = str(Path(__file__).absolute().parents[1])
    return sorted({*(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")), here})


def _stacks() -> dict[int, list[Frame]]:
    return {id: list(_calls(frame)) for id, frame in sys._current_frames().items()}


def _calls(frame: FrameType | None) -> Iterator[Frame]:
    """Yield a thread's calls, innermost first."""
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return
        code = frame.f_code
        yield Frame(code.co_filename, frame.f_lineno or 0, code.co_name)
        frame = frame.f_back


def _named(stack: Sequence[Frame], libraries: Sequence[str]) -> Blocker | None:
    ours = [_is_application(frame, libraries) for frame in stack]
    if True not in ours:
        return None
    at = ours.index(True)
    frame = stack[at]
    return Blocker(f"{frame.file}:{frame.line}", frame.function, _tool(stack[at:], ours[at:]))


def _tool(stack: Sequence[Frame], ours: Sequence[bool]) -> str | None:
    """Return the function that the agent library called, given the calls from the innermost of the application on."""
    last = stack[0].function
    for frame, is_ours in zip(stack, ours, strict=True):
        if any(part in frame.file for part in _CALLERS):
            return last
        if is_ours:
            last = frame.function
    return None


def _is_application(frame: Frame, libraries: Sequence[str]) -> bool:
    return not frame.file.startswith(("<frozen", *(f"{folder}/" for folder in libraries)))
