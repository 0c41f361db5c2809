"""What waits: the memory of watchers in a process, and of frames in Redis."""

from typing import Final

from benchmarks.feed import Feed
from benchmarks.remote import child, cpu_of
from benchmarks.rows import Row, cost_row
from benchmarks.stack import Bench

FEW: Final = 1_000
# How many watch one thread, and how many threads are watched.
MANY: Final = {"watchers": 10_000, "threads": 10_000}
TEXTS: Final = {"small": "x" * 160, "large": "x" * 2000}
"""With them, and the stamp, the `data` of a frame is about 200 bytes and 2 KB of JSON."""


async def measure(bench: Bench, feed: Feed) -> list[Row]:
    """Weigh crowds that only wait, and full streams."""
    bench.meter.begin("memory", 6)
    rows = []
    for name, count in MANY.items():
        rows += await _crowd_rows(bench, feed, name=name, count=count)
    for name, text in TEXTS.items():
        rows.append(await _stream_row(bench, feed, name=name, text=text))
    return rows


async def _crowd_rows(bench: Bench, feed: Feed, *, name: str, count: int) -> list[Row]:
    """Weigh a crowd by what the process holds, and one of FEW by what Python has allocated."""
    spread = name == "threads"
    made = await feed.threads(count if spread else 1)
    resident, cpu = await _weighed(bench, f"{name}-{count}", made, 1 if spread else count, traced=False)
    traced, _ = await _weighed(bench, f"{name}-{FEW}", made[:FEW], 1 if spread else FEW, traced=True)
    what = "watchers, each of a thread of its own" if spread else "watchers of one thread"
    held, allocated = resident / count / 1024, traced / FEW / 1024
    return [
        cost_row(f"memory-{name}", f"the process per watcher, {count} {what}", held, unit="KB", n=count),
        cost_row(f"memory-{name}-py", f"Python's own allocations, {FEW} {what}", allocated, unit="KB", n=FEW),
        cost_row(
            f"enter-{name}",
            f"processor time to let one enter, {count} {what}",
            cpu / count * 1e6,
            unit="us",
            n=count,
        ),
    ]


async def _weighed(
    bench: Bench, name: str, threads: list[str], each: int, *, traced: bool
) -> tuple[int, float]:
    """Return by how many bytes a process grows when a crowd enters, and the processor seconds that it takes."""
    bench.meter.tick()
    async with child(name, "benchmarks.crowd", "hub", env=bench.env, logs=bench.logs) as crowd:
        if traced:
            await crowd.ask("trace")
        which = "traced" if traced else "resident"
        before = (await crowd.ask("memory"))[which]
        busy = cpu_of(crowd.pid)
        await crowd.ask("watch", name=name, threads=threads, each=each, every=1)
        entered = cpu_of(crowd.pid) - busy
        return int((await crowd.ask("memory"))[which] - before), entered


async def _stream_row(bench: Bench, feed: Feed, *, name: str, text: str) -> Row:
    [thread] = await feed.threads(1)
    length, size, body = await feed.stored(thread, text, bench.settings.live_frames + 500)
    bench.meter.tick()
    what = (
        f"memory of a stored frame of {body} bytes of JSON; a stream capped at {bench.settings.live_frames} "
        f"held {length} and took {size / 1024:.0f} KB"
    )
    return cost_row(f"memory-stream-{name}", what, size / length / 1024, unit="KB", n=length)
