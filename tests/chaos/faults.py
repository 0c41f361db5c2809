"""How each kind of fault is inflicted, and taken back; every one is written down as it really was."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from redis.exceptions import RedisError

from tests.chaos.evidence import Inflicted
from tests.chaos.members import LEAVE_S_MAX, NotReady
from tests.chaos.proxy import Link
from tests.chaos.schedule import Fault
from tests.chaos.world import World

DELAY_S: Final = 0.15
SLOW_COMMITS: Final = 8


@dataclass(slots=True)
class Injector:
    """Plays a schedule of faults on a world.

    Args:
        world: whom to harm.
        faults: what is to happen.
        seconds: for how long; a fault whose target is still recovering then is left out.
    """

    world: World
    faults: Sequence[Fault]
    seconds: float
    inflicted: list[Inflicted] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    _postgres: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _redis: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _links: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)
    _notes: dict[Fault, str] = field(default_factory=dict, init=False)
    _shift: float = field(default=0.0, init=False)

    async def play(self) -> None:
        """Inflict everything in its time, and return when all of it has been taken back."""
        began = monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in self.faults:
                await asyncio.sleep(max(0.0, began + fault.at - monotonic()))
                tasks.create_task(self._inflict(fault, until=began + self.seconds), name=str(fault))

    async def _inflict(self, fault: Fault, *, until: float) -> None:
        lock, act = self._act(fault)
        async with lock:
            pids: Sequence[int] = ()
            began = monotonic()
            if began > until:
                return
            try:
                skipped, pids = await act(fault)
            except NotReady as error:
                skipped = ""
                self.broken.append(str(error))
            except (OSError, RedisError, TimeoutError) as error:
                skipped = f"{type(error).__name__}: {error}"[:200]
            done = Inflicted(
                kind=fault.kind,
                target=fault.target,
                pids=tuple(pids),
                began=began,
                ended=monotonic(),
                skipped=skipped,
                note=self._notes.pop(fault, ""),
            )
            self.inflicted.append(done)

    def _act(
        self, fault: Fault
    ) -> tuple[asyncio.Lock, Callable[[Fault], Awaitable[tuple[str, Sequence[int]]]]]:
        if fault.target == "postgres":
            return self._postgres, self._harm_postgres
        if fault.target == "redis":
            return self._redis, self._harm_redis
        if fault.target == "clock":
            return asyncio.Lock(), self._jump
        if "->" in fault.target:
            return self._links.setdefault(fault.target, asyncio.Lock()), self._harm_link
        return self.world.members[fault.target].lock, self._harm_member

    async def _harm_member(self, fault: Fault) -> tuple[str, Sequence[int]]:
        member = self.world.members[fault.target]
        pids: Sequence[int] = (member.pid,)
        match fault.kind:
            case "kill":
                member.kill()
                member.start()
                await member.ready()
            case "tell to end":
                began = monotonic()
                left = await member.leave()
                self._notes[fault] = f"gone after {monotonic() - began:.1f} s"
                if not left:
                    words = member.last_words()
                    self.broken.append(f"did not end within {LEAVE_S_MAX:.0f} s of being told to: {words}")
                member.start()
                await member.ready()
            case "kill the keeper":
                keepers = member.children()
                if not keepers:
                    return "this worker has no keeper process", ()
                for pid in keepers:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                pids = (member.pid, *keepers)
            case _:
                pids = member.signal(signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                for pid in reversed(pids):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
        return "", pids

    async def _harm_postgres(self, fault: Fault) -> tuple[str, Sequence[int]]:
        databases = self.world.databases
        match fault.kind:
            case "restart":
                await asyncio.to_thread(databases.restart)
            case "kill":
                await asyncio.to_thread(databases.kill)
                await asyncio.sleep(fault.seconds / 4)
                await asyncio.to_thread(databases.restart)
            case "fail over":
                await asyncio.to_thread(databases.fail_over)
                self.world.point_at_primary()
                await asyncio.to_thread(databases.renew_standby)
            case "slow commits":
                # With pauses in which runs come a little further: what waits for a commit holds its thread's lock.
                for _ in range(SLOW_COMMITS):
                    databases.freeze_standby()
                    await asyncio.sleep(fault.seconds)
                    databases.thaw()
                    await asyncio.sleep(0.3)
            case _:
                databases.freeze()
                await asyncio.sleep(fault.seconds)
                databases.thaw()
        return "", ()

    async def _jump(self, fault: Fault) -> tuple[str, Sequence[int]]:
        if not self.world.databases.shiftable:
            return "no libfaketime here: install the test extra of this project, or Debian's libfaketime", ()
        ahead = fault.kind == "jump forward"
        self._shift += fault.seconds if ahead else -fault.seconds
        self.world.databases.set_clock(self._shift)
        return "", ()

    async def _harm_redis(self, fault: Fault) -> tuple[str, Sequence[int]]:
        valkey = self.world.valkey
        match fault.kind:
            case "restart":
                await asyncio.to_thread(valkey.stop)
                await asyncio.to_thread(valkey.restart)
            case "kill":
                self.world.signal_valkey(signal.SIGKILL)
                await asyncio.sleep(fault.seconds / 2)
                await asyncio.to_thread(valkey.restart)
            case "freeze":
                self.world.signal_valkey(signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                self.world.thaw_valkey()
            case "flush":
                await asyncio.to_thread(self.world.redis().flushall)
            case _:
                kind = "pubsub" if fault.kind == "drop subscribers" else "normal"
                await asyncio.to_thread(self.world.redis().execute_command, "CLIENT", "KILL", "TYPE", kind)
        return "", ()

    async def _harm_link(self, fault: Fault) -> tuple[str, Sequence[int]]:
        link = self.world.links.all[fault.target]
        member = self.world.members[fault.target.partition(" ")[0]]
        async with self._healed(link):
            pid = member.pid
            self.world.links.do(lambda: _harm(link, fault.kind))
            await asyncio.sleep(0.0 if fault.kind == "cut" else fault.seconds)
        return "", (pid, member.pid)

    @asynccontextmanager
    async def _healed(self, link: Link) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.world.links.do(link.heal)


def _harm(link: Link, kind: str) -> None:
    match kind:
        case "cut":
            link.cut()
        case "delay":
            link.delay = DELAY_S
        case "half open":
            link.door, link.to_client = "half open", "hole"
        case "refuse":
            link.door = "refuse"
            link.cut()
        case "hole to server":
            link.to_server = "hole"
        case "hole to client":
            link.to_client = "hole"
        case _:
            link.to_server = "hold"
