"""Twenty who watch one run, of whom three stop reading: these are cut, and nobody else misses or loses anything.

The small form of the benchmark `crowd`. It is judged by what is counted; no time matters.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pydantic_ai import Agent, CustomEvent, RunContext
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.scripted import scripted_model
from tests.support.servers import Stack
from tests.support.waiting import until
from tests.support.watching import People, Watched
from threadhold import Threadhold
from threadhold.adapters.bootstrap import Parts, make_runner, open_parts, running_worker, worker_id
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.health import Health
from threadhold.adapters.http.server import ApiServer, listen

# What takes seconds may take longer on a machine that is busy; nothing is judged by it.
pytestmark = pytest.mark.timeout(240)

SOCKETS, STALLED = 20, 3
# Together more than the buffers on the way to one socket hold.
PAGES, AT_ONCE, CHARS = 60, 10, 30_000
# Nothing depends on when one that was cut reads on, and nobody healthy takes nothing for as long as this.
LIMITS: Final = Limits(write_s=4.0, outbox_frames=8, goodbye_s=120)


@dataclass(kw_only=True)
class SheetEvent(CustomEvent):
    """A piece of something large."""

    number: int
    text: str


class Pace:
    """Lets the tool go on when all who read have what it told so far: nobody of them may fall behind."""

    def __init__(self) -> None:
        self.reading: list[Watched] = []
        self.begin = asyncio.Event()

    async def keep(self, told: int) -> None:
        """Return when they have so many sheets."""

        async def look() -> bool:
            return all(len(sheets(each)) >= told for each in self.reading)

        await until(look, within=100, what=f"not all have seen {told} sheets")


def sheets(watched: Watched) -> list[int]:
    """Return the numbers of the sheets that came."""
    return [frame["data"]["number"] for frame in watched.frames if frame["kind"] == "draft"]


def telling(pace: Pace) -> Threadhold:
    """Return an app whose agent tells sheet after sheet."""
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool
    async def tell(ctx: RunContext[None]) -> str:
        """Tell them all."""
        await pace.begin.wait()
        for number in range(PAGES):
            await ctx.emit(SheetEvent(number=number, text="x" * CHARS))
            if (number + 1) % AT_ONCE == 0:
                await pace.keep(number + 1)
        return "told"

    return Threadhold(agents={"scripted": agent})


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica that runs its agent itself, and what it holds."""

    url: str
    parts: Parts


@asynccontextmanager
async def serving(app: Threadhold, stack: Stack) -> AsyncIterator[Replica]:
    """Serve an app in this process."""
    drain = asyncio.Event()
    async with (
        open_parts(stack.settings()) as parts,
        running_worker(app, parts, id=worker_id("w"), capacity=1),
    ):
        runner = make_runner(app, parts)
        api = create_api(runner, health=Health, drain=drain, limits=LIMITS)
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        task = asyncio.create_task(server.serve())
        try:
            yield Replica(f"http://127.0.0.1:{server.port}", parts)
        finally:
            server.should_exit = True
            await task
            await runner.aclose()


@asynccontextmanager
async def stalling(url: str, thread: str) -> AsyncIterator[ClientConnection]:
    """Watch over a socket that reads nothing after the answer."""
    address = url.replace("http", "ws", 1) + "/v1/ws"
    async with connect(address, max_size=None, proxy=None) as socket:
        await socket.send(json.dumps({"op": "watch", "thread": thread, "after": "start"}))
        await socket.recv()
        socket.transport.pause_reading()
        yield socket


async def read_all(socket: ClientConnection) -> Watched:
    """Return what is left for a socket until it is closed."""
    socket.transport.resume_reading()
    watched = Watched()
    try:
        async for text in socket:
            message: dict[str, Any] = json.loads(text)
            if message["op"] == "frame":
                watched.frames.append(message)
    except ConnectionClosed:
        pass
    return watched


async def cut(logs: Any) -> bool:
    """Tell whether as many sockets were cut as stalled."""
    return [entry["event"] for entry in logs].count("socket_stalled") >= STALLED


async def watched_by(replica: Replica, count: int) -> bool:
    """Tell whether so many watch through a replica."""
    return replica.parts.hub.stats().watchers == count


async def test_those_that_stall_are_cut_and_the_others_miss_nothing(stack: Stack, public: People) -> None:
    pace = Pace()
    async with serving(telling(pace), stack) as replica:
        sent = await public.client(replica.url).send(None, "call tell ;; say done", agent="scripted")
        thread, run = sent.thread, sent.run or ""
        for _ in range(SOCKETS - STALLED):
            pace.reading.append(await (await public.socket(replica.url)).watch(thread, after="start"))
        with capture_logs() as logs:
            async with AsyncExitStack() as opened:
                stalled = [
                    await opened.enter_async_context(stalling(replica.url, thread)) for _ in range(STALLED)
                ]
                # A watch is answered just before it begins.
                await until(lambda: watched_by(replica, SOCKETS), what="not all watch")
                pace.begin.set()
                await asyncio.gather(*(each.sees_end(run, within=100) for each in pace.reading))

                await until(lambda: cut(logs), within=60, what=f"not {STALLED} were cut")
                seen = await asyncio.gather(*(read_all(each) for each in stalled))

        left = SOCKETS - STALLED
        await until(lambda: watched_by(replica, left), what="what was for those that were cut is still held")
        # Each was cut once, and nobody else.
        assert [entry["event"] for entry in logs].count("socket_stalled") == STALLED
        closes = [each.protocol.close_rcvd for each in stalled]
        assert [(close.code, close.reason) for close in closes if close] == [
            (1013, "slow_consumer")
        ] * STALLED
        assert all(0 < len(sheets(each)) < PAGES for each in seen)
        back = [await (await public.socket(replica.url)).watch(thread, after=each.cursor) for each in seen]
        await asyncio.gather(*(each.sees_end(run, within=60) for each in back))
    for watched in (*pace.reading, *(Watched(*both) for both in zip(seen, back, strict=True))):
        watched.check_nothing_missing()
        assert sheets(watched) == list(range(PAGES))
        assert watched.lasting == pace.reading[0].lasting
