"""An executor: takes calls of one queue while it has free slots, and carries each out for as long as somebody waits."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Protocol

import structlog

from threadhold.claims.clock import Clock, now
from threadhold.runner.chores import every
from threadhold.runner.errors import Unavailable
from threadhold.runner.remote_records import LOST, RemoteCall, RemoteEnd

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
TIDY_EVERY_S: Final = 30.0
# Whose executor has been silent for so long is ended, in case the worker that asked has gone as well.
SILENT: Final = timedelta(minutes=1)
FINISH_AGAIN_S: Final = 0.25
# Its worker has given a call up by then.
FINISH_TRIES: Final = 100
# An executor that cannot say that it lives is taken for dead by then, and may as well be.
MUTE_S: Final = 8.0


class Carriers(Protocol):
    """Carry out calls, each apart from the others."""

    @property
    def ready(self) -> int:
        """How many calls can be carried out now."""
        ...

    async def start(self) -> None:
        """Return when one can be carried out."""
        ...

    def carry_out(self, call: RemoteCall) -> asyncio.Task[RemoteEnd]:
        """Carry out a call; what does is killed if it takes too long or the task is cancelled."""
        ...

    async def aclose(self) -> None:
        """Carry out none any more."""
        ...


class LentStore(Protocol):
    """Where calls are taken from."""

    async def take(self, *, limit: int, id: str | None = None) -> list[RemoteCall]:
        """Take calls, for good: the one with an id, or those that have waited longest."""
        ...

    async def beat(self, ids: Sequence[str]) -> tuple[list[str], bool]:
        """Say that this executor lives; return which of these calls nobody waits for, and whether it is to leave."""
        ...

    async def tidy(self, *, silent: timedelta) -> None:
        """End the calls that nobody waits for any more, and those of executors that are gone."""
        ...

    async def finish(self, id: str, end: RemoteEnd) -> bool:
        """Record how a call came out; False if it had been given up by then."""
        ...

    async def leave(self) -> None:
        """Say that this executor leaves."""
        ...


@dataclass(slots=True, eq=False)
class Doing:
    """A call that is carried out here."""

    call: RemoteCall
    carrying: asyncio.Task[RemoteEnd]
    task: asyncio.Task[None] | None = None
    dropped: bool = False


class Executor:
    """Carries out calls.

    Args:
        queue: whose calls.
        store: where they are taken from.
        children: makes the processes that they run in; gets what is to be called when one is ready.
        ended: tells a worker that a call has ended.
        clock: seconds.
    """

    def __init__(
        self,
        queue: str,
        *,
        store: LentStore,
        children: Callable[[Callable[[], None]], Carriers],
        ended: Callable[[RemoteCall], None],
        clock: Clock = now,
    ) -> None:
        self.names: Final = (queue,)
        self._store = store
        self._children = children(lambda: self._slot_freed.set())
        self._ended = ended
        self._clock = clock
        self._doing: dict[str, Doing] = {}
        self._taking = 0
        self._takings: set[asyncio.Task[int]] = set()
        self._leaving = False
        self._slot_freed = asyncio.Event()
        self._asked_to_leave = asyncio.Event()
        self._heard = clock()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def free_slots(self) -> int:
        """How many more calls it may take now: as many as there are processes that wait for one."""
        return 0 if self._leaving or self._mute() else max(0, self._children.ready - self._taking)

    @property
    def running(self) -> int:
        """How many calls it is carrying out."""
        return len(self._doing)

    @property
    def leaving(self) -> bool:
        """Whether it takes no more calls, for good."""
        return self._leaving

    async def slot(self) -> None:
        """Return when there is a free slot."""
        while self.free_slots == 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()

    async def drained(self) -> None:
        """Return when an operator has asked this executor to leave."""
        await self._asked_to_leave.wait()

    async def start(self) -> None:
        """Say that it is there, and begin to look for calls.

        Raises:
            ChildFailed: the app cannot be loaded in a child.
            Unavailable: the database cannot be reached.
        """
        await self._children.start()
        await self._beat()
        self._loops = [
            asyncio.create_task(every(LOOK_EVERY_S, self._beat, "beat_failed"), name="beat"),
            asyncio.create_task(self._watch(), name="watch"),
            asyncio.create_task(every(LOOK_EVERY_S, self._take, "take_failed"), name="take"),
            asyncio.create_task(every(TIDY_EVERY_S, self._tidy, "tidy_failed"), name="tidy"),
        ]

    async def attend(self, id: str) -> bool:
        """Take the call with this id and start it, if nobody has and a slot is free."""
        return await self._take_some(1, id=id) > 0

    def drop(self, id: str) -> None:
        """Kill what carries out a call that nobody waits for any more."""
        doing = self._doing.get(id)
        if doing is not None and not doing.dropped:
            doing.dropped = True
            # After its first step, which has it see to its process.
            asyncio.get_running_loop().call_soon(doing.carrying.cancel)

    def leave(self) -> None:
        """Take no more calls."""
        self._leaving = True

    async def aclose(self, *, grace: float) -> None:
        """Take no more calls, and kill what still runs here after `grace` seconds."""
        self.leave()
        await asyncio.gather(*self._takings, return_exceptions=True)
        if left := {doing.task for doing in self._doing.values() if doing.task is not None}:
            await asyncio.wait(left, timeout=grace)
            self._drop_all()
            await asyncio.wait(left)
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._children.aclose()
        try:
            await self._store.leave()
        except Unavailable as error:
            log.warning("unregister_failed", detail=str(error))

    async def _take(self) -> None:
        if self.free_slots:
            self._slot_freed.set()
            await self._take_some(self.free_slots)

    async def _take_some(self, limit: int, *, id: str | None = None) -> int:
        """Take calls and start them, even if this is cancelled: what is taken is taken for good."""
        if self.free_slots < limit:
            return 0
        self._taking += limit
        taking = asyncio.create_task(self._take_now(limit, id), name="take")
        self._takings.add(taking)
        taking.add_done_callback(self._takings.discard)
        return await asyncio.shield(taking)

    async def _take_now(self, limit: int, id: str | None) -> int:
        began = self._clock()
        try:
            calls = await self._store.take(limit=limit, id=id)
            for call in calls:
                self._launch(replace(call, left_s=call.left_s - (self._clock() - began)))
            return len(calls)
        finally:
            self._taking -= limit
            self._slot_freed.set()

    def _launch(self, call: RemoteCall) -> None:
        log.info("remote_call_taken", call=call.id, thread=call.thread, run=call.run, tool=call.tool)
        carrying = self._children.carry_out(call)
        doing = self._doing[call.id] = Doing(call, carrying)
        doing.task = asyncio.create_task(self._see_to(doing), name=f"call {call.id}")

    async def _see_to(self, doing: Doing) -> None:
        """Wait for the end of a call, and record it."""
        call = doing.call
        try:
            await self._finish(call, await _ended(doing.carrying))
        finally:
            del self._doing[call.id]
            self._slot_freed.set()

    async def _finish(self, call: RemoteCall, end: RemoteEnd) -> None:
        for _ in range(FINISH_TRIES):
            try:
                counted = await self._store.finish(call.id, end)
                break
            except Unavailable:
                await asyncio.sleep(FINISH_AGAIN_S)
        else:
            counted = False
        outcome = end.outcome if counted else "dropped"
        log.info("remote_call_ended", call=call.id, thread=call.thread, run=call.run, outcome=outcome)
        if counted:
            self._ended(call)

    async def _beat(self) -> None:
        began = self._clock()
        unwanted, draining = await self._store.beat(list(self._doing))
        self._heard = began
        for id in unwanted:
            self.drop(id)
        if draining:
            self._asked_to_leave.set()

    async def _watch(self) -> None:
        """Look whether this executor is mute, also while it waits for the database to answer."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._hush()

    def _hush(self) -> None:
        """Kill all that runs here if this executor could not say for long that it lives: workers take it for dead."""
        if self._doing and self._mute():
            log.warning("executor_mute", calls=len(self._doing))
            self._drop_all()

    def _mute(self) -> bool:
        return self._clock() - self._heard > MUTE_S

    def _drop_all(self) -> None:
        """Kill all that runs here."""
        for id in list(self._doing):
            self.drop(id)

    async def _tidy(self) -> None:
        await self._store.tidy(silent=SILENT)


async def _ended(carrying: asyncio.Task[RemoteEnd]) -> RemoteEnd:
    """Return how a call came out; nobody knows it of one that was killed, or that a fault of ours has ended."""
    await asyncio.wait({carrying})
    if carrying.cancelled():
        return LOST
    if (error := carrying.exception()) is not None:
        log.error("remote_call_broken", error=type(error).__name__, detail=str(error)[:200])
        return LOST
    return carrying.result()
