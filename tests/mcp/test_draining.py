"""A replica that shuts down lets go of whoever waits, with a handle to go on from elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.mcp.replicas import ERAS, Replicas, call, host, replica
from tests.support.waiting import until
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.health import Health
from threadhold.adapters.mcp.door import McpDoor
from threadhold.runner.errors import Closed

pytestmark = pytest.mark.asyncio(loop_scope="package")

AGENT = "scripted"
Gate = Callable[[str], Path]


@pytest.mark.parametrize("era", ERAS)
async def test_a_wait_returns_and_goes_on_elsewhere(pair: Replicas, era: str, gate: Gate) -> None:
    finish, heard = gate("finish"), asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        # What comes before is of a message that waits for its run.
        if message == "on":
            heard.set()

    async with replica(pair.runner) as leaving, host(leaving, era) as c:
        # The client wants to know what a result may look like, and could not ask any more then.
        await c.list_tools()
        given = {"content": f"say on | hold {finish} | say  and on", "agent": AGENT}
        waiting = asyncio.create_task(c.call_tool("send", given, progress_callback=on_progress))
        await heard.wait()
        pair.drain(leaving)
        sent = (await waiting).structured_content
        assert sent["status"] == "running"
    finish.touch()
    async with host(pair.b, era) as b:
        on = await call(b, "watch", thread=sent["thread"], run=sent["run"], after=sent["cursor"])
        assert (on["status"], on["output"]) == ("completed", "on and on")


async def test_what_comes_after_that_is_refused(pair: Replicas) -> None:
    drain = asyncio.Event()
    drain.set()
    with pytest.raises(Closed):
        await knocking(pair, drain)()


def knocking(pair: Replicas, drain: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """Return what sends a request to a door of its own."""
    api = create_api(pair.runner, health=Health, drain=drain)
    door = McpDoor(api.state.doors)
    scope = {"type": "http", "app": api, "path": "/mcp", "headers": []}
    return lambda: door(scope, None, None)  # type: ignore[arg-type]


class Library:
    """Answers requests until it breaks."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.answered = 0

    async def asgi_app(self, scope: object, receive: object, send: object) -> None:
        """Answer a request."""
        self.answered += 1

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run until it breaks."""
        async with asyncio.TaskGroup() as tasks:
            failing = tasks.create_task(self._fail())
            yield
            failing.cancel()

    async def _fail(self) -> None:
        await self.broken.wait()
        raise RuntimeError("the library broke")


async def test_a_door_whose_library_broke_opens_anew(pair: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Library(), Library()
    made = iter((first, second))
    monkeypatch.setattr(McpDoor, "_made", lambda door: next(made))
    drain = asyncio.Event()
    knock = knocking(pair, drain)
    await knock()
    assert (first.answered, second.answered) == (1, 0)
    first.broken.set()

    async def is_anew() -> bool:
        await knock()
        return second.answered > 0

    await until(is_anew)
    drain.set()


async def test_a_subscription_ends_in_order(pair: Replicas, gate: Gate) -> None:
    async with replica(pair.runner) as leaving, host(leaving, "auto") as c:
        sent = await call(c, "send", content=f"hold {gate('never')}", agent=AGENT, wait_s=0)
        async with c.listen(resource_subscriptions=[f"threadhold://runs/{sent['run']}"]) as changes:
            pair.drain(leaving)
            # An abrupt end would raise.
            async for _ in changes:
                pass
    async with host(pair.a, "auto") as a:
        assert (await call(a, "stop", run=sent["run"]))["settled"]
