"""Two transactions at once: one is held open before its commit while the other is asked, then both must have done what
they do one after the other.

Each pair is played on a thread, and in order on a twin in the same state; answers and what is left must be equal. A
lock that is missing, or that is taken in the statement that reads, shows every time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from tests.model import state
from tests.model.bench import WORKERS, Bench
from tests.support.waiting import until

KEPT, OTHER = WORKERS
START_KEY: Final = UUID(int=7)
ASKED: Final = (
    state.Request(0, state.QUESTION),
    state.Request(0, state.APPROVAL, expires=state.LATER),
)
Row = dict[str, Any]


@dataclass
class Scene:
    """A thread in a certain state, with what is needed to ask for every transaction."""

    bench: Bench
    run: UUID = field(default_factory=uuid4)  # that no thread has, until there is one
    claim: UUID = field(default_factory=uuid4)
    request: UUID = field(default_factory=uuid4)


async def set_up(schema: str, name: str, connection: Any) -> Scene:
    """Bring a new thread into a state."""
    bench = Bench(schema)
    scene = Scene(bench)
    await bench.send(connection, "first")
    await bench.run(connection, "befriend", bench.thread, "other")
    await SCENES[name](scene, connection)
    await bench.see(connection)
    scene.run = bench.runs()[-1]
    if bench.requests():
        scene.request = bench.requests()[0]
    return scene


async def _nothing(scene: Scene, connection: Any) -> None:
    """Leave the run pending."""


async def _started(scene: Scene, connection: Any) -> None:
    row = await scene.bench.claim(connection, KEPT, START_KEY)
    scene.claim, scene.run = row["claim_id"], row["run"]


async def _running(scene: Scene, connection: Any) -> None:
    await _started(scene, connection)
    await scene.bench.record(connection, scene.claim, 1, [1])


async def _idle(scene: Scene, connection: Any) -> None:
    await _running(scene, connection)
    await scene.bench.end(connection, scene.run, scene.claim, "completed")


async def _waited_for(scene: Scene, connection: Any) -> None:
    """Let a message wait for the run, and one for the run after it."""
    await _running(scene, connection)
    await scene.bench.send(connection, "steered")
    await scene.bench.send(connection, "queued", "queue")


async def _stopping(scene: Scene, connection: Any) -> None:
    await _waited_for(scene, connection)
    await scene.bench.stop(connection, run=scene.run)


async def _lapsed(scene: Scene, connection: Any) -> None:
    await _running(scene, connection)
    await scene.bench.run(connection, "run_out", scene.bench.thread)


async def _paused(scene: Scene, connection: Any) -> None:
    await _running(scene, connection)
    await scene.bench.pause(connection, scene.run, scene.claim, ASKED)


async def _asked_once(scene: Scene, connection: Any) -> None:
    await _running(scene, connection)
    await scene.bench.pause(connection, scene.run, scene.claim, ASKED[:1])


async def _expired(scene: Scene, connection: Any) -> None:
    await _running(scene, connection)
    await scene.bench.pause(connection, scene.run, scene.claim, ASKED[1:])
    await scene.bench.run(connection, "come_late", scene.bench.thread)


async def _direct(scene: Scene, connection: Any) -> None:
    await _idle(scene, connection)
    row = await scene.bench.hold(connection, KEPT, START_KEY)
    scene.claim, scene.run = row["claim_id"], row["run"]


SCENES: Final[dict[str, Callable[[Scene, Any], Awaitable[None]]]] = {
    "idle": _idle,
    "pending": _nothing,
    "started": _started,
    "running": _running,
    "waited for": _waited_for,
    "stopping": _stopping,
    "lapsed": _lapsed,
    "paused": _paused,
    "asked once": _asked_once,
    "expired": _expired,
    "direct": _direct,
}

Call = Callable[[Scene, Any, str], Awaitable[Row]]

CALLS: Final[dict[str, Call]] = {
    "send": lambda s, c, who: s.bench.send(c, f"of {who}"),
    "send_queue": lambda s, c, who: s.bench.send(c, f"of {who}", "queue"),
    "send_interrupt": lambda s, c, who: s.bench.send(c, f"of {who}", "interrupt"),
    "send_same_key": lambda s, c, _: s.bench.send(c, "of both"),
    "stop_run": lambda s, c, _: s.bench.stop(c, run=s.run),
    "stop_thread": lambda s, c, who: s.bench.stop(c, key=str(ord(who))),
    "stop_same_key": lambda s, c, _: s.bench.stop(c, key="0"),
    "answer": lambda s, c, _: s.bench.answer(c, s.request, "reply"),
    "answer_no": lambda s, c, _: s.bench.answer(c, s.request, "reject", "me"),
    "expire": lambda s, c, _: s.bench.expire(c),
    "claim": lambda s, c, _: s.bench.claim(c, OTHER, uuid4()),
    "claim_again": lambda s, c, _: s.bench.claim(c, KEPT, START_KEY),
    "hold": lambda s, c, _: s.bench.hold(c, OTHER, uuid4()),
    "record": lambda s, c, _: s.bench.record(c, s.claim, 2, []),
    "record_first": lambda s, c, _: s.bench.record(c, s.claim, 1, [1]),
    "end": lambda s, c, _: s.bench.end(c, s.run, s.claim, "completed"),
    "fail": lambda s, c, _: s.bench.end(c, s.run, s.claim, "failed"),
    "pause": lambda s, c, who: s.bench.pause(c, s.run, s.claim, ASKED, 10 if who == "A" else 20),
    "hand_over": lambda s, c, _: s.bench.hand_over(c, s.run, s.claim),
    "release": lambda s, c, _: s.bench.release(c, s.claim),
    "partial": lambda s, c, _: s.bench.partial(c, s.claim),
    "ask_executor": lambda s, c, _: s.bench.ask_executor(c, s.claim),
    "renew": lambda s, c, _: s.bench.renew(c, KEPT, s.claim),
    "lapse": lambda s, c, _: s.bench.lapse(c),
    "replay": lambda s, c, _: s.bench.replay(c, s.run),
    "rename": lambda s, c, who: s.bench.rename(c, who),
    "archive": lambda s, c, _: s.bench.archive(c),
}
# Which transaction a call asks for, where the names differ.
OF_FUNCTION: Final = {
    "send_v2": ("send", "send_queue", "send_interrupt", "send_same_key"),
    "stop_v1": ("stop_run", "stop_thread", "stop_same_key"),
    "update_thread_v2": ("rename", "archive"),
    "claim_v4": ("claim", "claim_again"),
    "hold_v3": ("hold",),
    "record_v2": ("record", "record_first"),
    "end_v1": ("end", "fail"),
    "release_v1": ("release",),
    "hand_over_v2": ("hand_over",),
    "partial_v1": ("partial",),
    "remote_ask_v1": ("ask_executor",),
    "lapse_v2": ("lapse",),
    "pause_v1": ("pause",),
    "answer_v1": ("answer", "answer_no"),
    "expire_v1": ("expire",),
    "replay_v2": ("replay",),
    "_take_over": ("claim", "hold"),
}
# These do not wait for a thread that somebody is at: they say so, and are asked again.
SKIPS: Final[dict[str, Callable[[Row], bool]]] = {
    "expire": lambda row: row["seq"] is None,
    "lapse": lambda row: row["result"] is None,
    "renew": lambda row: row["result"] == "busy",
}
# What nobody can foresee, or what depends on the moment; `stop` and `waiting` are news, said again with each renewal.
UNTOLD: Final = frozenset({"fence", "inbox", "message", "dispatch", "has_worker", "stop", "waiting"})


@dataclass
class Lane:
    """Three connections for one pair at a time: for A, for B, and for everything else."""

    first: Any
    second: Any
    aside: Any
    second_pid: int

    @classmethod
    async def open(cls, url: str) -> "Lane":
        """Open the connections."""
        second: Any = await asyncpg.connect(url)
        return cls(await asyncpg.connect(url), second, await asyncpg.connect(url), second.get_server_pid())

    async def aclose(self) -> None:
        """Close the connections."""
        for connection in (self.first, self.second, self.aside):
            await connection.close()


@dataclass
class Outcome:
    """What both were answered, and what was left."""

    first: Any
    second: Any
    left: Any
    waited: bool = False


async def answered(call: str, scene: Scene, connection: Any, who: str) -> Any:
    """Return the row that a transaction answers, or how the database refused it."""
    try:
        return await CALLS[call](scene, connection, who)
    except asyncpg.PostgresError as error:
        return type(error).__name__


async def one_after_the_other(lane: Lane, scene: Scene, a: str, b: str) -> Outcome:
    """Play a pair in order."""
    first = await answered(a, scene, lane.first, "A")
    second = await answered(b, scene, lane.second, "B")
    return await _told(lane, scene, first, second)


async def at_once(lane: Lane, scene: Scene, a: str, b: str) -> Outcome:
    """Hold A open before its commit until B waits or is done, then let both end."""
    transaction = lane.first.transaction()
    await transaction.start()
    first = await answered(a, scene, lane.first, "A")
    task = asyncio.ensure_future(answered(b, scene, lane.second, "B"))

    async def waits_or_is_done() -> bool:
        row = await scene.bench.row(lane.aside, "blocked", lane.second_pid)
        return task.done() or bool(row["coalesce"])

    await until(waits_or_is_done, what=f"{b} neither waits nor is done")
    waited = not task.done()
    await (transaction.rollback() if isinstance(first, str) else transaction.commit())
    second = await task
    if b in SKIPS and not isinstance(second, str) and SKIPS[b](second):
        second = await answered(b, scene, lane.second, "B")
    told = await _told(lane, scene, first, second)
    told.waited = waited
    return told


async def _told(lane: Lane, scene: Scene, first: Any, second: Any) -> Outcome:
    db = await scene.bench.see(lane.aside)
    names = scene.bench.names()
    left = (db, *(scene.bench.look[name] for name in ("facts", "history", "head", "state")))
    return Outcome(_plain(first, names), _plain(second, names), left)


def _plain(row: Any, names: dict[UUID, str]) -> Any:
    """Return an answer with ids by what they stand for; ids of nothing that is there are all alike."""
    if isinstance(row, str):
        return row
    return {
        key: names.get(value, "nothing") if isinstance(value, UUID) else value
        for key, value in row.items()
        if key not in UNTOLD
    }


@dataclass
class Difference:
    """A pair that did at once what it does not do in order."""

    scene: str
    first: str
    second: str
    in_order: Outcome
    together: Outcome

    def __str__(self) -> str:
        parts = [f"{self.scene}: {self.first} while {self.second} is asked"]
        for what in ("first", "second", "left"):
            serial, overlapped = getattr(self.in_order, what), getattr(self.together, what)
            if serial != overlapped:
                parts.append(f"  {what}, in order: {serial}\n  {what}, at once:  {overlapped}")
        return "\n".join(parts)


async def compare(lane: Lane, schema: str, scene: str, a: str, b: str) -> tuple[bool, Difference | None]:
    """Play one pair; returns whether B waited, and what differs."""
    in_order = await one_after_the_other(lane, await set_up(schema, scene, lane.aside), a, b)
    together = await at_once(lane, await set_up(schema, scene, lane.aside), a, b)
    same = (in_order.first, in_order.second, in_order.left) == (
        together.first,
        together.second,
        together.left,
    )
    return together.waited, None if same else Difference(scene, a, b, in_order, together)


async def prepare(lane: Lane, schema: str) -> None:
    """Let the database have been up for long, so that lapsed claims are taken."""
    bench = Bench(schema)
    await bench.run(lane.aside, "note_start")
    await bench.run(lane.aside, "up_for", timedelta(days=1))
