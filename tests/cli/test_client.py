"""The client: typed errors, and watches that come back by themselves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.cli.conftest import Api
from tests.cli.frames import fact, fields, frame
from threadhold.adapters.client import Client, ClientError, Watched

Script = Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def scripted(*scripts: Script) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve one script per connection, the last one again and again; yield the URL and what was asked."""
    asked: list[dict[str, Any]] = []

    async def handle(socket: ServerConnection) -> None:
        ask = json.loads(await socket.recv())
        asked.append(ask)
        await scripts[min(len(asked), len(scripts)) - 1](socket, ask)

    async with serve(handle, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked


def showing(*seqs: int, close: int = 1000, end: bool = False, began: str = "0-0-0") -> Script:
    """Return a script that accepts the watch, shows facts, and closes."""

    async def script(socket: ServerConnection, ask: dict[str, Any]) -> None:
        result = {"thread": ask["thread"], "cursor": began}
        await socket.send(json.dumps({"op": "result", "id": ask["id"], "ok": True, "result": result}))
        frames = [fact(seq, "x") for seq in seqs] + ([frame("end", {"state": "idle"}, seq=9)] if end else [])
        for each in frames:
            await socket.send(json.dumps({"op": "frame", **fields(each)}))
        await socket.close(close)

    return script


def saying(message: dict[str, Any]) -> Script:
    """Return a script that says one thing."""

    async def script(socket: ServerConnection, ask: dict[str, Any]) -> None:
        await socket.send(json.dumps(message))
        await socket.wait_closed()

    return script


async def watched(url: str, **options: Any) -> list[Watched]:
    """Watch until idle."""
    async with Client(url, give_up_after=options.pop("give_up_after", 5.0)) as client:
        return [each async for each in client.watch("t", until="idle", **options)]


async def test_a_watch_comes_back_with_its_last_cursor_and_shows_each_frame_once() -> None:
    async with scripted(showing(1, 2), showing(3, close=1012), showing(4, end=True)) as (url, asked):
        seen = await watched(url)
    assert [each.frame.seq for each in seen] == [1, 2, 3, 4, 9]
    assert [ask["after"] for ask in asked] == [None, "2-1-0", "3-1-0"]
    assert {ask["until"] for ask in asked} == {"idle"}
    assert seen[0].fields["cursor"] == seen[0].cursor == "1-1-0"


async def test_a_watch_that_is_cut_off_before_its_first_frame_does_not_jump_ahead() -> None:
    async with scripted(showing(began="7-0-0"), showing(8, end=True)) as (url, asked):
        await watched(url, after="head")
    assert [ask["after"] for ask in asked] == ["head", "7-0-0"]


async def test_a_gap_and_a_watch_that_a_replica_ends_for_the_moment_are_watched_again() -> None:
    gap = saying({"op": "gap", "thread": "t", "after": "5-0-0"})
    away = saying({"op": "watch_ended", "thread": "t", "error": {"code": "unavailable", "message": "away"}})
    async with scripted(gap, away, showing(6, end=True)) as (url, asked):
        seen = await watched(url)
    assert [ask["after"] for ask in asked] == [None, "5-0-0", "5-0-0"]
    assert [each.frame.seq for each in seen] == [6, 9]


@pytest.mark.parametrize(
    "message",
    [
        {
            "op": "result",
            "id": 1,
            "ok": False,
            "error": {"code": "not_found", "message": "no", "what": "thread"},
        },
        {
            "op": "watch_ended",
            "thread": "t",
            "error": {"code": "not_found", "message": "no", "what": "thread"},
        },
    ],
)
async def test_a_refusal_ends_the_watch_with_its_code(message: dict[str, Any]) -> None:
    async with scripted(saying(message)) as (url, asked):
        with pytest.raises(ClientError) as caught:
            await watched(url)
    assert (caught.value.code, caught.value.message) == ("not_found", "no")
    assert caught.value.data == {"what": "thread"}
    assert len(asked) == 1


async def test_what_is_not_json_is_a_typed_error() -> None:
    async def garbage(socket: ServerConnection, ask: dict[str, Any]) -> None:
        await socket.send("{")

    async with scripted(garbage) as (url, _):
        with pytest.raises(ClientError, match="not JSON"):
            await watched(url)


async def test_a_watch_gives_up_when_nobody_listens() -> None:
    async with scripted(showing()) as (url, _):
        pass
    with pytest.raises(ClientError) as caught:
        await watched(url, give_up_after=0.2)
    assert caught.value.code == "unreachable"
    assert url in caught.value.message


async def test_a_call_to_nobody_says_what_to_do() -> None:
    async with scripted(showing()) as (url, _):
        pass
    async with Client(url) as client:
        with pytest.raises(ClientError, match="start it with `threadhold dev`") as caught:
            await client.thread("t")
    assert caught.value.code == "unreachable"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", ""])
def test_a_url_must_be_one(url: str) -> None:
    with pytest.raises(ClientError) as caught:
        Client(url)
    assert caught.value.code == "bad_url"


async def test_the_calls_return_records(api: Api) -> None:
    async with Client(api.url) as client:
        assert await client.agents() == ("support", "other")
        receipt = await client.send(None, "hi", agent="support", key="k")
        assert (receipt.disposition, receipt.run, receipt.no_worker) == ("started", "run-1", False)
        assert (await client.thread(receipt.thread)).agent == "support"
        assert (await client.run("run-1")).status == "running"
        assert (await client.message("message-1")).content == "hi"
        assert (await client.send(receipt.thread, "more", on_busy="queue")).disposition == "queued"
        stopped = await client.stop(run="run-1", wait=0)
        assert (stopped.settled, stopped.status) == (False, "running")
        assert (await client.stop(thread=receipt.thread, wait=0)).run == "run-1"
    keys = [given["key"] for name, given in api.runner.calls if name == "send"]
    assert keys[0] == "k"
    assert len(set(keys)) == len(keys)


async def test_a_refusal_of_a_call_carries_code_status_and_data(api: Api) -> None:
    async with Client(api.url) as client:
        with pytest.raises(ClientError) as caught:
            await client.send(None, "hi", agent="nobody")
        assert caught.value.code == "unknown_agent"
        assert caught.value.status == 404
        assert caught.value.data["known"] == ["support", "other"]
        with pytest.raises(ClientError) as caught:
            await client.thread("../../healthz?x#y")
        assert caught.value.code in {"not_found", "unknown_path"}


async def test_a_real_watch_ends_when_the_thread_is_idle(api: Api) -> None:
    async with Client(api.url) as client, asyncio.timeout(10):
        receipt = await client.send(None, "hi", agent="support")
        kinds = [each.frame.kind async for each in client.watch(receipt.thread, until="idle")]
    assert kinds == ["fact", "fact", "event", "event", "fact", "fact", "end"]


@pytest.mark.parametrize("url", ["http://someone:secret@127.0.0.1:9", "ftp://someone:secret@host"])
async def test_a_password_in_a_url_is_not_told(url: str) -> None:
    with pytest.raises(ClientError) as caught:
        async with Client(url) as client:
            await client.agents()
    assert url.rpartition("@")[2] in caught.value.message
    assert "secret" not in caught.value.message
