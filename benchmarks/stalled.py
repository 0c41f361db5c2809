"""Many sockets of which some stall: what that costs the replica, and what the others notice of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Any, Final

from benchmarks.errors import NothingCame
from benchmarks.feed import Feed, open_feed
from benchmarks.progress import Meter
from benchmarks.remote import Child, child, files_of, resident_of
from benchmarks.rows import Row, cost_row, latency_row, percentile
from benchmarks.sockets import URL_VARIABLE
from benchmarks.stack import TARGET, Bench, Started, process, ready
from benchmarks.stamps import now
from threadhold.adapters.http.doors import Limits
from threadhold.fanout.hub import Hub

THREADS: Final = 10
READ: Final = 18
STALL: Final = 2
SOCKETS: Final = THREADS * (READ + STALL)
STALLED: Final = THREADS * STALL
FRAMES_PER_S: Final = 20
# Large enough that what a stalled socket misses until it is cut is more than may wait for it.
TEXT: Final = "x" * 6000
FRAME_BYTES: Final = len(TEXT) + 400
# What the kernel keeps for a socket that is not read. Less would make it slow when it reads on.
BUFFER_BYTES: Final = 32 * 1024
WARM_UP_S: Final = 5.0
CALM_SHARE: Final = 6
PAUSE_S: Final = 2.0
CUT_WITHIN_S: Final = 60.0
LOOK_EVERY_S: Final = 0.1
RATIO_MAX: Final = 3.0
# Memory goes up and down with each round, so a line through less than some rounds says nothing.
SLOPE_SAMPLES_MIN: Final = 60
# Connections to Postgres and Redis that are opened under load.
FILES_SLACK: Final = 30
# A backlog is read in pages of so much JSON, and a transport holds so much before its writer waits.
PAGE_BYTES: Final = 1024 * 1024
TRANSPORT_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Weights:
    """Memory and open files of the replica, each second: when, bytes, files."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    async def follow(self, pid: int, meter: Meter) -> None:
        """Sample for ever."""
        while True:
            self.samples.append((now(), resident_of(pid), files_of(pid)))
            meter.tick()
            await asyncio.sleep(1.0)

    def between(self, begin: float, end: float) -> list[tuple[float, int, int]]:
        """Return the samples of a time."""
        return [sample for sample in self.samples if begin <= sample[0] <= end]


@dataclass(slots=True)
class Rounds:
    """How late frames were, in seconds, while some stalled and while they came back; and when each round ended."""

    stalled: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a crowd saw, and what it cost.

    Args:
        calm, stalled, returns: seconds that deliveries to those who read were late, before anybody stalled, while some
            stalled, and while these came back.
        before, after: open files of the replica before the crowd came and when it had gone.
        rest: bytes, the most before anybody stalled.
        weights: of the time in which some stalled.
        steady: those of them after the first round.
        stalls, cuts: how often a socket stalled, and how often the replica says that it cut one.
        read, back: the reports of those who read and of those who stall.
    """

    calm: list[float]
    stalled: list[float]
    returns: list[float]
    before: int
    after: int
    rest: int
    weights: Sequence[tuple[float, int, int]]
    steady: Sequence[tuple[float, int, int]]
    stalls: int
    cuts: int
    read: dict[str, Any]
    back: dict[str, Any]


async def measure(bench: Bench) -> list[Row]:
    """Let some of many sockets stall again and again, and look at the replica and at the others."""
    seconds = bench.minutes * 60
    bench.meter.begin("crowd", round(seconds))
    async with open_feed(bench) as feed:
        return _rows(await _taken(bench, feed, seconds))


async def _taken(bench: Bench, feed: Feed, seconds: float) -> Taken:
    threads = await feed.threads(THREADS)
    command = ["threadhold", "serve", TARGET, "--port", "0"]
    with process("crowd", command, env=bench.env, logs=bench.logs) as door:
        url = json.loads(await ready(door.log, '"api_ready"'))["url"]
        before = files_of(door.pid)
        async with _crowd(bench, url) as (reading, stalling), feed.outboxes(threads) as outboxes:
            await asyncio.gather(
                reading.ask("watch", threads=threads, each=READ),
                stalling.ask("watch", threads=threads, each=STALL),
            )
            weights, pause = Weights(), 1 / (FRAMES_PER_S * THREADS)
            following = asyncio.create_task(weights.follow(door.pid, bench.meter))
            count = round(seconds / pause)
            feeding = asyncio.create_task(feed.drip(outboxes, frames=count, pause=pause, text=TEXT))
            await asyncio.sleep(WARM_UP_S)
            await reading.ask("lags")
            calm_from = now()
            await asyncio.sleep(seconds / CALM_SHARE)
            calm = (await reading.ask("lags"))["lags"]
            rounds = Rounds()
            stalled_from = now()
            while not feeding.done():
                await _round(rounds, reading, stalling, door)
                await asyncio.wait({feeding}, timeout=PAUSE_S)
            await feeding
            last = outboxes[-1].position[1]
            await asyncio.gather(reading.ask("until", number=last), stalling.ask("until", number=last))
            until = now()
            following.cancel()
            read, back = await reading.ask("report"), await stalling.ask("report")
        return Taken(
            calm=calm,
            stalled=rounds.stalled,
            returns=rounds.returns,
            before=before,
            after=await _left(door, before),
            rest=max(resident for _, resident, _ in weights.between(calm_from, stalled_from)),
            weights=weights.between(stalled_from, until),
            steady=weights.between(rounds.ends[0], until),
            stalls=len(rounds.ends) * STALLED,
            cuts=_cuts(door),
            read=read,
            back=back,
        )


@asynccontextmanager
async def _crowd(bench: Bench, url: str) -> AsyncIterator[tuple[Child, Child]]:
    """Start a process of sockets that read, and one of sockets that stall: coming back must not hold up the others."""
    env = bench.env | {URL_VARIABLE: url}
    async with AsyncExitStack() as stack:
        reading, stalling = [
            await stack.enter_async_context(
                child(f"crowd-{name}", "benchmarks.readers", str(buffer), env=env, logs=bench.logs)
            )
            for name, buffer in (("reading", 0), ("stalling", BUFFER_BYTES))
        ]
        yield reading, stalling


async def _round(rounds: Rounds, reading: Child, stalling: Child, door: Started) -> None:
    """Let sockets stall until they are cut, and come back. The last round may outlast the feed."""
    await reading.ask("lags")
    await stalling.ask("stall")
    await _cut(door, (len(rounds.ends) + 1) * STALLED)
    rounds.stalled += (await reading.ask("lags"))["lags"]
    await stalling.ask("read_on")
    rounds.returns += (await reading.ask("lags"))["lags"]
    rounds.ends.append(now())


async def _cut(door: Started, count: int) -> None:
    """Wait until the replica has cut so many sockets."""
    try:
        async with asyncio.timeout(CUT_WITHIN_S):
            while True:
                if _cuts(door) >= count:
                    break
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise NothingCame(f"the end of {count} stalled sockets", CUT_WITHIN_S) from None


def _cuts(door: Started) -> int:
    return door.log.read_text().count('"socket_stalled"')


async def _left(door: Started, before: int) -> int:
    """Return the open files of the replica once they are no more than at first, or after a while."""
    for _ in range(50):
        if files_of(door.pid) <= before:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    return files_of(door.pid)


def allowed_bytes() -> int:
    """Return by how much the stalled sockets may make the replica grow.

    For each: what waits in its outbox, and as much again that its writer has in hand; what waits in its queue of the
    hub, and a page of its backlog, both as text and parsed; what its transport holds; and a frame more in each.
    """
    outbox = Limits().outbox_chars + FRAME_BYTES
    queue = int((Hub.__init__.__kwdefaults__ or {})["queue_chars_max"]) + FRAME_BYTES
    each = 2 * outbox + 2 * queue + 2 * PAGE_BYTES + TRANSPORT_BYTES + FRAME_BYTES
    return STALLED * each


def _rows(taken: Taken) -> list[Row]:
    return [*_lag_rows(taken), *_count_rows(taken), *_weight_rows(taken)]


def _lag_rows(taken: Taken) -> list[Row]:
    load = f"{FRAMES_PER_S} frames/s of {len(TEXT)} bytes on each of {THREADS} threads"
    to = f"Outbox.put -> the {SOCKETS - STALLED} sockets that read, {load}"
    calm = percentile(taken.calm, 99) * 1000
    rows = []
    for name, lags, when in (
        ("crowd-lag", taken.stalled, f"while {STALLED} others stall"),
        ("crowd-lag-returns", taken.returns, "while these come back and catch up"),
    ):
        p99, what = percentile(lags, 99) * 1000, f"{to}, {when}; floor: before anybody stalls"
        rows += [
            latency_row(name, what, lags, taken.calm),
            cost_row(f"{name}-p99", f"p99 {when}", p99, calm, unit="ms", ratio_max=RATIO_MAX, n=len(lags)),
        ]
    return rows


def _count_rows(taken: Taken) -> list[Row]:
    read, back = taken.read, taken.back
    lost = sum(report["missing"] + report["gaps"] for report in (read, back))
    # Those that read are never cut, and those that stall once each time.
    wrong = read["told"] + read["dropped"] + abs(taken.cuts - taken.stalls)
    cut = (
        f"sockets cut while they stalled, of {taken.stalls}; as the clients saw it, {back['told']} with 1013"
    )
    return [
        cost_row(
            "crowd-missing",
            f"frames missed, repeated or out of order, and gaps, over all {SOCKETS} sockets and their reconnects",
            lost,
            unit="",
            goal=0,
            n=read["frames"] + back["frames"],
        ),
        cost_row(
            "crowd-cut",
            f"{cut} slow_consumer, {back['dropped']} without a word",
            taken.cuts,
            unit="",
            n=taken.stalls,
        ),
        cost_row(
            "crowd-cut-wrong",
            "cuts of sockets that read, and stalls without a cut",
            wrong,
            unit="",
            goal=0,
            n=taken.stalls,
        ),
    ]


def _weight_rows(taken: Taken) -> list[Row]:
    grown = max(resident for _, resident, _ in taken.weights) - taken.rest
    allowed, n = allowed_bytes(), len(taken.weights)
    memory = (
        f"memory of the replica, the most while some stall, over {taken.rest / 1024:.0f} KB before; "
        f"{STALLED} stalled sockets may hold {allowed / STALLED / 1024:.0f} KB each"
    )
    files = f"open files of the replica at most; it had {taken.before} before {SOCKETS} sockets came"
    # Sockets may come back before the last one of theirs is gone.
    goal = taken.before + SOCKETS + STALLED + FILES_SLACK
    rows = [
        cost_row("crowd-memory", memory, grown / 1024, unit="KB", goal=allowed // 1024, n=n),
        cost_row("crowd-files", files, max(each for _, _, each in taken.weights), unit="", goal=goal, n=n),
        cost_row(
            "crowd-files-left",
            "those of them when all sockets had gone",
            taken.after,
            unit="",
            goal=taken.before + FILES_SLACK,
            n=1,
        ),
    ]
    if len(taken.steady) >= SLOPE_SAMPLES_MIN:
        rows.append(_slope_row(taken.steady))
    return rows


def _slope_row(samples: Sequence[tuple[float, int, int]]) -> Row:
    times, bytes_held = [at for at, _, _ in samples], [resident for _, resident, _ in samples]
    slope = linear_regression(times, bytes_held).slope
    what = "its growth per minute after the first round of stalls, as a line through all samples"
    return cost_row("crowd-memory-slope", what, slope * 60 / 1024, unit="KB", n=len(samples))
