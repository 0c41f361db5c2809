"""Watchers as people have them, over a WebSocket or an event stream; each keeps all that it was sent."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.waiting import until
from threadhold.adapters.client import Client
from threadhold.adapters.replies import answered

Json = dict[str, Any]
T = TypeVar("T")


class Watched:
    """The frames of one thread that one watcher has received, in order, over one or more connections."""

    def __init__(self, *earlier: "Watched") -> None:
        self.frames: list[Json] = [frame for watched in earlier for frame in watched.frames]

    @property
    def cursor(self) -> str:
        """Where a reconnect goes on."""
        return str(self.frames[-1]["cursor"])

    @property
    def lasting(self) -> tuple[list[Json], list[Json]]:
        """The facts and the live frames, each in their order, without what differs between watchers."""
        bare = [{k: v for k, v in frame.items() if k not in ("op", "cursor")} for frame in self.frames]
        return [frame for frame in bare if frame["kind"] == "fact"], [
            frame for frame in bare if frame["n"] > 0
        ]

    def facts(self, kind: str, *, run: str | None = None) -> list[Json]:
        """Return the data of facts of a kind."""
        facts = [frame for frame in self.frames if frame["kind"] == "fact" and run in (None, frame["run"])]
        return [fact["data"] for fact in facts if fact["data"]["fact"] == kind]

    def text(self, run: str) -> str:
        """Return the text deltas of a run, one after the other."""
        events = [frame["data"] for frame in self.frames if (frame["kind"], frame["run"]) == ("event", run)]
        return "".join(map(_text_of, events))

    def ended(self, run: str) -> Json | None:
        """Return the end of a run, if it was seen."""
        return next(iter(self.facts("run_ended", run=run)), None)

    async def sees(self, what: Callable[[Self], T], *, within: float = 30.0) -> T:
        """Return the first true answer of a look at what has arrived."""

        async def look() -> T:
            return what(self)

        return await until(look, within=within, what=self._latest)

    def _latest(self) -> str:
        return f"the latest frames are {[_brief(frame) for frame in self.frames[-20:]]}"

    async def sees_end(self, run: str, *, within: float = 30.0) -> Json:
        """Return the end of a run as soon as it arrives."""
        return await self.sees(lambda seen: seen.ended(run), within=within) or {}

    def check_nothing_missing(self) -> None:
        """Demand facts without a hole, live frames without a hole within each attempt, and nothing twice."""
        assert [frame for frame in self.frames if frame["kind"] == "gap"] == []
        seqs = [frame["seq"] for frame in self.frames if frame["kind"] == "fact"]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        live = [(frame["fence"], frame["n"]) for frame in self.frames if frame["n"] > 0]
        assert live == sorted(live)
        for _, numbered in itertools.groupby(live, key=lambda place: place[0]):
            numbers = [n for _, n in numbered]
            assert numbers == list(range(1, len(numbers) + 1))


def _text_of(event: Json) -> str:
    match event:
        case {"event_kind": "part_start", "part": {"part_kind": "text", "content": str(text)}}:
            return text
        case {"event_kind": "part_delta", "delta": {"part_delta_kind": "text", "content_delta": str(text)}}:
            return text
        case _:
            return ""


def _brief(frame: Json) -> str:
    data = frame["data"]
    return f"{frame['cursor']} {frame['kind']} {data.get('fact') or data.get('event_kind') or data}"


class Socket:
    """A WebSocket to an API replica, with its operations and watches."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._watched: dict[str, Watched] = {}

    async def ask(self, op: str, **fields: Any) -> Json:
        """Do an operation and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._connection.send(json.dumps({"id": number, "op": op, **fields}))
        async with asyncio.timeout(30):
            said = await answer
        assert said["ok"], said
        result: Json = said["result"]
        return result

    async def watch(self, thread: str, *, after: str | None = None, **options: Any) -> Watched:
        """Watch a thread from a cursor on, or from the start of its current run."""
        watched = self._watched[thread] = Watched()
        await self.ask("watch", thread=thread, after=after, **options)
        return watched

    def drop(self) -> None:
        """Vanish, as a phone does in a tunnel: without a goodbye."""
        self._connection.transport.abort()

    async def read(self) -> None:
        """Read until the connection ends."""
        try:
            async for text in self._connection:
                said = json.loads(text)
                if said["op"] == "frame":
                    self._watched[said["thread"]].frames.append(said)
                elif said["op"] == "result":
                    self._answers.pop(said["id"]).set_result(said)
        except ConnectionClosed:
            return


async def _read_events(lines: AsyncIterator[str], watched: Watched) -> None:
    cursor = ""
    async for line in lines:
        field, _, value = line.partition(": ")
        if field == "id":
            cursor = value
        elif field == "data":
            frame = json.loads(value)
            assert frame["cursor"] == cursor
            watched.frames.append(frame)


class People:
    """Opens what people use to talk to API replicas, and closes it all in the end."""

    def __init__(self, opened: AsyncExitStack, reading: set[asyncio.Task[None]]) -> None:
        self._opened = opened
        self._reading = reading

    def client(self, url: str) -> Client:
        """Return a REST client of a replica."""
        client = Client(url)
        self._opened.push_async_callback(client.aclose)
        return client

    async def socket(self, url: str) -> Socket:
        """Open a WebSocket to a replica."""
        address = url.replace("http", "ws", 1) + "/v1/ws"
        connection = connect(address, subprotocols=[Subprotocol("threadhold.v1")], proxy=None)
        socket = Socket(await self._opened.enter_async_context(connection))
        self._reading.add(asyncio.create_task(socket.read()))
        return socket

    async def listen(self, url: str, thread: str, *, after: str | None = "start", **options: str) -> Watched:
        """Watch a thread over server-sent events. Raises ClientError for a refusal."""
        asked = options if after is None else {"after": after, **options}
        http = await self._opened.enter_async_context(
            httpx.AsyncClient(trust_env=False, verify=False, timeout=None)
        )
        request = http.stream("GET", f"{url}/v1/threads/{thread}/frames", params=asked)
        response = await self._opened.enter_async_context(request)
        if response.status_code != 200:
            await response.aread()
            answered(response)
        watched = Watched()
        self._reading.add(asyncio.create_task(_read_events(response.aiter_lines(), watched)))
        return watched


@asynccontextmanager
async def people() -> AsyncIterator[People]:
    """Yield somebody who can talk to replicas."""
    reading: set[asyncio.Task[None]] = set()
    async with AsyncExitStack() as opened:
        try:
            yield People(opened, reading)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
