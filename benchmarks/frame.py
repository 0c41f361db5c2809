"""How long a frame takes from the worker to a watcher in another process."""

from collections.abc import Callable
from typing import Final

from benchmarks.rows import Row, latency_row
from benchmarks.stack import BY, Bench
from benchmarks.stamps import now
from threadhold.fanout.frame import Frame

EVENTS: Final = 150
EVENT_PAUSE_S: Final = 0.025
DELTAS: Final = 60
# Longer than the window in which an outbox joins deltas, so that each opens a window of its own.
DELTA_PAUSE_S: Final = 0.08
WINDOW_MS: Final = 50.0
WARM_UP: Final = 10

StampOf = Callable[[Frame], float | None]


async def measure(bench: Bench) -> list[Row]:
    """Watch one run that emits events and one that streams deltas; a floor follows each frame."""
    bench.meter.begin("frame", EVENTS + DELTAS)
    script = f"events {WARM_UP + EVENTS} {EVENT_PAUSE_S}"
    events, floor = await _watched(bench, script, _event_stamp)
    rows = [
        latency_row("frame", "event -> watcher in another process", events, floor, goal_ms=2, ratio_max=2)
    ]
    deltas, floor = await _watched(bench, f"deltas {WARM_UP + DELTAS} {DELTA_PAUSE_S}", delta_stamp)
    what = f"text delta -> watcher, with the {WINDOW_MS:g} ms window that joins deltas"
    rows.append(latency_row("frame-delta", what, deltas, floor, goal_ms=2, ratio_max=2, window_ms=WINDOW_MS))
    return rows


async def _watched(bench: Bench, script: str, stamp_of: StampOf) -> tuple[list[float], list[float]]:
    """Return the seconds of each stamped frame and of a bare PUBLISH of the same size just after it."""
    receipt = await bench.runner.send(None, script, by=BY, agent="bench")
    subject: list[float] = []
    floor: list[float] = []
    async for delivery in bench.runner.watch(receipt.thread, by=BY, after="start", until="idle"):
        at = now()
        stamp = stamp_of(delivery.frame)
        if stamp is None:
            continue
        subject.append(at - stamp)
        floor.append(await bench.floors.frame(len(delivery.body)))
        if len(subject) > WARM_UP:
            bench.meter.tick()
    return subject[WARM_UP:], floor[WARM_UP:]


def _event_stamp(frame: Frame) -> float | None:
    stamp = frame.data.get("stamp")
    return float(stamp) if stamp is not None else None


def delta_stamp(frame: Frame) -> float | None:
    """Return the first stamp in a delta: where two were joined, the one that opened the window."""
    if frame.data.get("event_kind") != "part_delta":
        return None
    return float(frame.data["delta"]["content_delta"].split()[0])
