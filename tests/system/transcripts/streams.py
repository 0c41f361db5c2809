"""The doors that show frames: a WebSocket, and REST with server-sent events. What was sent and received is kept raw."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.waiting import until
from tests.support.watching import People, Watched
from tests.system.conftest import System
from tests.system.transcripts.kept import Json, kept, line, named
from tests.system.transcripts.play import AGENT, Door


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Something that was asked of a door, its answer, and the fact that it caused, if it did."""

    asked: list[Json]
    fact: str = ""
    cause: str = ""

    def caused(self, frame: Json) -> bool:
        """Tell whether a frame is the fact that this call caused."""
        named = (frame["run"], frame["data"].get("message"), frame["data"].get("request"))
        return frame["data"].get("fact") == self.fact and self.cause in named


class FrameDoor(ABC):
    """Keeps calls and frames apart as they come, and tells each call just before the fact that it caused."""

    def __init__(self) -> None:
        self.seen = Watched()
        self.thread: str | None = None
        self.run = ""
        self._calls: list[Call] = []

    async def send(self, content: str) -> None:
        """Send; the first time, watch as well."""
        first = self.thread is None
        asked, receipt = await self.ask_send(content)
        self.thread, self.run = receipt["thread"], receipt["run"]
        self.did(asked, "" if first else "message_accepted", receipt["message"])
        if first:
            self.did(await self.ask_watch(receipt["thread"]))

    async def approve(self) -> None:
        """Approve the request that was shown last."""
        request = str(self.seen.facts("request_opened")[-1]["request"])
        self.did(await self.ask_approve(request), "request_answered", request)

    async def stop(self) -> None:
        """Stop the run."""
        self.did(await self.ask_stop(self.run), "stop_requested", self.run)

    async def shows(self, fact: str, times: int = 1) -> None:
        """Return when so many facts of a kind have arrived."""
        await self.seen.sees(lambda seen: len(seen.facts(fact)) >= times)

    async def says(self, text: str) -> None:
        """Return when the run has said this."""
        await self.seen.sees(lambda seen: seen.text(self.run) == text)

    def did(self, asked: list[Json], fact: str = "", cause: str = "") -> None:
        """Keep what was asked and answered."""
        self._calls.append(Call(asked=asked, fact=fact, cause=cause))

    def transcript(self) -> str:
        """Return calls and frames in the order of what happened, whichever of a receipt and a frame came first."""
        self.seen.check_nothing_missing()
        calls = list(self._calls)
        told: list[Json] = []
        while calls and not calls[0].fact:
            told += calls.pop(0).asked
        for frame in kept(self.seen.frames):
            if calls and calls[0].caused(frame):
                told += calls.pop(0).asked
            told.append({"<-": self.shown(frame)})
        assert calls == []
        return named("".join(f"{line(each)}\n" for each in told))

    def shown(self, frame: Json) -> Json:
        """Return a frame as the door shows it."""
        return frame

    @abstractmethod
    async def ask_send(self, content: str) -> tuple[list[Json], Json]:
        """Send, and return what was said on both sides, and the receipt."""

    @abstractmethod
    async def ask_watch(self, thread: str) -> list[Json]:
        """Begin to watch."""

    @abstractmethod
    async def ask_approve(self, request: str) -> list[Json]:
        """Approve."""

    @abstractmethod
    async def ask_stop(self, run: str) -> list[Json]:
        """Stop."""


class SocketDoor(FrameDoor):
    """A WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self._connection = connection
        self._said: dict[int, Json] = {}
        self._asked = 0

    async def read(self) -> None:
        """Read until the connection ends."""
        try:
            async for text in self._connection:
                said = json.loads(text)
                if said["op"] == "frame":
                    self.seen.frames.append(said)
                else:
                    self._said[said["id"]] = said
        except ConnectionClosed:
            return

    async def _ask(self, op: str, **fields: Any) -> tuple[list[Json], Json]:
        self._asked += 1
        asked = {"id": self._asked, "op": op, **fields}
        await self._connection.send(json.dumps(asked))

        async def look() -> Json | None:
            return self._said.pop(asked["id"], None)

        said = await until(look, what=f"no answer to {asked}") or {}
        assert said["ok"], said
        return [{"->": asked}, {"<-": said}], said["result"]

    async def ask_send(self, content: str) -> tuple[list[Json], Json]:
        """Send."""
        whom = {"agent": AGENT} if self.thread is None else {}
        return await self._ask("send", thread=self.thread, **whom, content=content)

    async def ask_watch(self, thread: str) -> list[Json]:
        """Watch."""
        return (await self._ask("watch", thread=thread, after="start"))[0]

    async def ask_approve(self, request: str) -> list[Json]:
        """Approve."""
        return (await self._ask("answer", request=request, decision={"kind": "approve"}))[0]

    async def ask_stop(self, run: str) -> list[Json]:
        """Stop."""
        return (await self._ask("stop", run=run, wait=5))[0]


class EventsDoor(FrameDoor):
    """REST for what is done, server-sent events for what is shown."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__()
        self._http = http
        self.reading: asyncio.Task[None] | None = None

    async def _post(self, path: str, body: Json) -> tuple[list[Json], Json]:
        response = await self._http.post(path, json=body)
        value: Json = response.json()
        assert response.is_success, value
        answered = {
            "status": response.status_code,
            "location": response.headers.get("location"),
            "json": value,
        }
        return [{"->": f"POST {path}", "json": body}, {"<-": answered}], value

    async def ask_send(self, content: str) -> tuple[list[Json], Json]:
        """Send."""
        if self.thread is None:
            return await self._post("/v1/messages", {"agent": AGENT, "content": content})
        return await self._post(f"/v1/threads/{self.thread}/messages", {"content": content})

    async def ask_watch(self, thread: str) -> list[Json]:
        """Watch."""
        path = f"/v1/threads/{thread}/frames?after=start"
        self.reading = asyncio.create_task(self._read(path))
        return [{"->": f"GET {path}"}]

    async def ask_approve(self, request: str) -> list[Json]:
        """Approve."""
        return (await self._post(f"/v1/requests/{request}/answer", {"kind": "approve"}))[0]

    async def ask_stop(self, run: str) -> list[Json]:
        """Stop."""
        return (await self._post(f"/v1/runs/{run}/stop", {"wait": 5}))[0]

    async def _read(self, path: str) -> None:
        async with self._http.stream("GET", path) as response:
            fields: dict[str, str] = {}
            async for text in response.aiter_lines():
                name, _, value = text.partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    self._take(fields)
                    fields = {}

    def _take(self, fields: dict[str, str]) -> None:
        frame = json.loads(fields["data"])
        assert (fields["event"], fields["id"]) == (frame["kind"], frame["cursor"])
        self.seen.frames.append(frame)

    def shown(self, frame: Json) -> Json:
        """Return a frame as an event."""
        return {"event": frame["kind"], "id": frame["cursor"], "data": frame}


@asynccontextmanager
async def over_websocket(system: System, public: People) -> AsyncIterator[Door]:
    """Open a WebSocket to one replica."""
    address = system.a.replace("http", "ws", 1) + "/v1/ws"
    async with connect(address, subprotocols=[Subprotocol("threadhold.v1")], proxy=None) as connection:
        door = SocketDoor(connection)
        reading = asyncio.create_task(door.read())
        yield door
        await connection.close()
        await reading


@asynccontextmanager
async def over_sse(system: System, public: People) -> AsyncIterator[Door]:
    """Open connections to the other replica."""
    async with httpx.AsyncClient(base_url=system.b, trust_env=False, timeout=30) as http:
        door = EventsDoor(http)
        yield door
        if door.reading is not None:
            door.reading.cancel()
            await asyncio.gather(door.reading, return_exceptions=True)
