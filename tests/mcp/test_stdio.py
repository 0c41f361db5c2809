"""The same tools over stdio, as a process that a host starts, in both eras."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import mcp.types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from tests.mcp.replicas import ERAS, VERSIONS, Replicas, call, code, read
from tests.mcp.test_asking import PAY, Person
from tests.mcp.test_waiting import ScriptedDesk
from threadhold.adapters.mcp import stdio
from threadhold.adapters.mcp.remote import ClientDesk

pytestmark = pytest.mark.asyncio(loop_scope="package")

ROOT = str(Path(__file__).parents[2])
AGENT = "scripted"


@asynccontextmanager
async def process(url: str, era: str, **options: Any) -> AsyncIterator[Client]:
    """Start `threadhold mcp` for a replica and talk to it."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "threadhold", "mcp", "--url", url],
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - nothing is ever written to it by us
        async with Client(stdio_client(command, errlog=nowhere), mode=era, **options) as client:
            yield client


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("era", ERAS)
async def test_everything_over_one_pipe(pair: Replicas, era: str) -> None:
    person, changed = Person("accept", decision="approve"), asyncio.Event()
    told: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            changed.set()

    options: dict[str, Any] = {"elicitation_callback": person, "message_handler": on_message}
    async with process(pair.a, era, **options) as c:
        assert c.protocol_version == VERSIONS[era]
        tools = {tool.name: tool for tool in (await c.list_tools()).tools}
        assert "One of: scripted." in tools["send"].input_schema["properties"]["agent"]["description"]

        result = await c.call_tool("send", {"content": PAY, "agent": AGENT}, progress_callback=on_progress)
        sent = result.structured_content
        assert (sent["status"], sent["output"], len(person.asked)) == ("completed", "done", 1)
        assert told
        assert (await call(c, "get_run", run=sent["run"]))["output"] == "done"
        assert sent["thread"] in {each["thread"] for each in (await call(c, "list_threads"))["threads"]}
        assert await code(c, "get_run", run=sent["thread"]) == "not_found"
        assert await code(c, "send", content="hi", thread=sent["thread"], colour="red") == "invalid_input"

        uri = f"threadhold://threads/{sent['thread']}"
        assert (await read(c, uri))["thread"]["state"] == "idle"
        if era == "legacy":
            await c.session.subscribe_resource(uri)
            await call(c, "send", thread=sent["thread"], content="say more")
            await changed.wait()
            await c.session.unsubscribe_resource(uri)
        else:
            async with c.listen(resource_subscriptions=[uri]) as changes:
                await call(c, "send", thread=sent["thread"], content="say more")
                await anext(aiter(changes))
        stopped = await call(c, "stop", thread=sent["thread"])
        assert stopped["settled"]


async def test_a_replica_that_is_away_is_an_error_of_the_tool() -> None:
    async with process("http://127.0.0.1:9", "auto") as c:
        assert await code(c, "send", content="hi", agent=AGENT) == "unreachable"
        assert {tool.name for tool in (await c.list_tools()).tools} >= {"send", "watch"}


async def test_subscriptions_are_bounded_also_when_they_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "SUBSCRIPTIONS_MAX", 2)
    desk = ScriptedDesk()
    subscriptions = stdio.Subscriptions(cast(ClientDesk, desk))
    ctx = cast(Any, None)

    async def subscribe(id: int) -> str | None:
        params = types.SubscribeRequestParams(uri=f"threadhold://threads/{id}")
        try:
            await subscriptions.subscribe(ctx, params)
        except MCPError as refused:
            return str(refused)
        return None

    refused = "at most 2 subscriptions; end one first"
    assert await asyncio.gather(*map(subscribe, range(4))) == [None, None, refused, refused]
    assert await subscribe(1) is None
    await subscriptions.unsubscribe(ctx, types.UnsubscribeRequestParams(uri="threadhold://threads/0"))
    assert [await subscribe(2), await subscribe(3)] == [None, refused]
    await subscriptions.aclose()
    assert desk.watching == 0
