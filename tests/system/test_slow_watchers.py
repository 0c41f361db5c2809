"""Three who watch one run, of whom one stops reading: it is cut, told why, comes back and misses nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, CustomEvent, RunContext
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.scripted import scripted_model
from tests.support.servers import Stack
from tests.support.waiting import until
from tests.support.watching import People, Watched
from threadhold import Threadhold, open_runner
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.health import Health
from threadhold.adapters.http.server import ApiServer, listen

ROUNDS, AT_ONCE, CHARS = 40, 10, 30_000
# Four seconds without a byte are long enough for a watcher that is healthy and slow on a slow machine; none of what
# follows depends on how soon the one that was cut reads on.
LIMITS = Limits(write_s=4.0, outbox_frames=8, goodbye_s=120)


@dataclass(kw_only=True)
class PageEvent(CustomEvent):
    """A piece of something large."""

    number: int
    text: str


class Pace:
    """Lets the tool go on when the healthy watchers have seen what it told so far."""

    def __init__(self) -> None:
        self.watchers: list[Watched] = []

    async def keep(self, told: int) -> None:
        """Return when everybody healthy has so many pages."""

        async def look() -> bool:
            return all(len(pages(each)) >= told for each in self.watchers)

        await until(look, within=50, what=f"not all have seen {told} pages")


def pages(watched: Watched) -> list[int]:
    """Return the numbers of the pages that came."""
    return [frame["data"]["number"] for frame in watched.frames if frame["kind"] == "draft"]


def pouring(pace: Pace, begin: asyncio.Event) -> Threadhold:
    """Return an app whose agent tells its watchers more than any buffer on the way holds."""
    agent: Agent[None, str] = Agent(scripted_model())

    @agent.tool
    async def pour(ctx: RunContext[None]) -> str:
        """Tell it all, round by round."""
        await begin.wait()
        for number in range(ROUNDS * AT_ONCE):
            await ctx.emit(PageEvent(number=number, text="x" * CHARS))
            if (number + 1) % AT_ONCE == 0:
                await pace.keep(number + 1)
        return "poured"

    return Threadhold(agents={"scripted": agent})


@asynccontextmanager
async def serving(app: Threadhold, stack: Stack) -> AsyncIterator[str]:
    """Serve an app that also runs its agent, and yield the URL."""
    drain = asyncio.Event()
    async with open_runner(app, stack.settings(), capacity=2) as runner:
        api = create_api(runner, health=Health, drain=drain, limits=LIMITS)
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        task = asyncio.create_task(server.serve())
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            server.should_exit = True
            await task


async def test_one_that_stops_reading_is_cut_with_a_reason_and_misses_nothing_when_it_comes_back(
    stack: Stack, public: People
) -> None:
    pace, begin = Pace(), asyncio.Event()
    async with serving(pouring(pace, begin), stack) as url:
        client = public.client(url)
        sent = await client.send(None, "call pour ;; say done", agent="scripted")
        thread, run = sent.thread, sent.run or ""
        socket = await public.socket(url)
        pace.watchers += [await socket.watch(thread, after="start"), await public.listen(url, thread)]
        async with connect(url.replace("http", "ws", 1) + "/v1/ws", max_size=None, proxy=None) as stalled:
            await stalled.send(json.dumps({"op": "watch", "thread": thread, "after": "start"}))
            await stalled.recv()
            stalled.transport.pause_reading()
            with capture_logs() as logs:
                begin.set()
                ends = await asyncio.gather(*(each.sees_end(run, within=55) for each in pace.watchers))
                await until(lambda: cut(logs), what="nobody was cut")
                assert [end["output"] for end in ends] == ["done"] * 2
            seen = Watched()
            stalled.transport.resume_reading()
            await read_all(stalled, seen)
            close = stalled.protocol.close_rcvd
        assert close is not None
        assert (close.code, close.reason) == (1013, "slow_consumer")
        assert 0 < len(pages(seen)) < ROUNDS * AT_ONCE

        back = await (await public.socket(url)).watch(thread, after=seen.cursor)
        await back.sees_end(run)
    both, healthy = Watched(seen, back), pace.watchers
    for each in (both, *healthy):
        each.check_nothing_missing()
        assert pages(each) == list(range(ROUNDS * AT_ONCE))
        assert each.lasting == healthy[0].lasting


async def cut(logs: Any) -> bool:
    """Tell whether a socket was cut because it stalled."""
    return any(entry["event"] == "socket_stalled" for entry in logs)


async def read_all(socket: Any, watched: Watched) -> None:
    """Read what is left until the socket is closed."""
    try:
        async for text in socket:
            message = json.loads(text)
            if message["op"] == "frame":
                watched.frames.append(message)
    except ConnectionClosed:
        return
