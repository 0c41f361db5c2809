"""The MCP door: a host that sends, looks again after the cursor that it was given, answers and stops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from mcp import Client

from tests.mcp.replicas import VERSIONS, host
from tests.mcp.test_stdio import process
from tests.support.waiting import until
from tests.support.watching import People
from tests.system.conftest import System
from tests.system.transcripts.kept import Json, line, named, unmeasured
from tests.system.transcripts.play import AGENT, Door, Opened

# How far a run has come when its message has just been accepted is a matter of luck.
LUCK: Final = ("status", "cursor", "text")


class HostDoor:
    """Keeps the calls with their results. A look that does not show yet what is waited for is not kept."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: list[list[Json]] = []
        self._thread: str | None = None
        self._runs: list[str] = []
        self._cursor = "start"
        self._facts: list[str] = []
        self._steering: asyncio.Task[Json] | None = None
        self._request = ""

    async def _call(self, tool: str, **given: Any) -> tuple[list[Json], Json]:
        result = await self._client.call_tool(tool, given)
        assert not result.is_error, result.content
        values: Json = unmeasured(result.structured_content)
        texts = [content.model_dump()["text"] for content in result.content]
        return [{"->": tool, "arguments": given}, {"<-": values}, {"<-": "\n".join(texts)}], values

    async def _did(self, tool: str, **given: Any) -> Json:
        """Call a tool and keep it where it began."""
        place: list[Json] = []
        self._told.append(place)
        told, values = await self._call(tool, **given)
        place += told
        return values

    async def send(self, content: str) -> None:
        """Send: without waiting to an idle thread, and to a busy one waiting, for what comes of it."""
        if self._steering is None and self._thread is not None:
            given = {"thread": self._thread, "content": content, "key": "steer"}
            self._steering = asyncio.create_task(self._did("send", **given))
            return
        to = {"agent": AGENT} if self._thread is None else {"thread": self._thread}
        asked, sent = await self._call("send", **to, content=content, wait_s=0)
        self._thread = sent["thread"]
        self._runs.append(sent["run"])
        self._told.append(
            [asked[0], {"<-": {name: value for name, value in sent.items() if name not in LUCK}}]
        )

    async def approve(self) -> None:
        """Approve what the waiting `send` has come back with, and wait for the end."""
        assert self._steering is not None
        (asked,) = (await self._steering)["requests"]
        await self._did("answer", request=asked["request"], kind="approve", args_hash=asked["args_hash"])

    async def stop(self) -> None:
        """Stop the run, and look at what became of both."""
        await self._did("stop", run=self._runs[-1])
        for run in self._runs:
            await self._did("get_run", run=run)

    async def shows(self, fact: str, times: int = 1) -> None:
        """Return when so many facts of a kind were told."""
        needed = times - self._facts.count(fact)
        await self._looks(lambda seen: [each["fact"] for each in seen["events"]].count(fact) >= needed)

    async def says(self, text: str) -> None:
        """Return when the run has said this."""
        await self._looks(lambda seen: seen["text"] == text)

    async def _looks(self, enough: Any) -> None:
        """Look until it is enough; keep that look, and go on behind it."""
        asked: list[list[Json]] = []

        async def look() -> Json | None:
            told, values = await self._call("watch", thread=self._thread, after=self._cursor, wait_s=0)
            asked[:] = [told]
            return values if enough(values) else None

        seen = await until(look, what=lambda: f"the last look: {asked}")
        assert seen is not None
        self._told += asked
        self._cursor = seen["cursor"]
        self._facts += [each["fact"] for each in seen["events"]]

    def transcript(self) -> str:
        """Return the calls and their results."""
        return named("".join(f"{line(each)}\n" for told in self._told for each in told))


def over_mcp(transport: Any, era: str) -> Opened:
    """Return what connects a host over a transport, in an era of the protocol."""

    @asynccontextmanager
    async def opened(system: System, public: People) -> AsyncIterator[Door]:
        connected: AbstractAsyncContextManager[Client] = transport(system.a, era)
        async with connected as client:
            assert client.protocol_version == VERSIONS[era]
            yield HostDoor(client)

    return opened


over_http, over_stdio = host, process
