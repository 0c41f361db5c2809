"""The client: typed errors, and watches that come back by themselves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.cli.conftest import Api
from tests.cli.frames import fact, fields, frame
from tests.http.records import request_of, run_of, why_of, worker_of
from threadhold.adapters.cli.failure import USAGE, exit_code_of
from threadhold.adapters.client import Client, ClientError, Watched
from threadhold.runner.decisions import Decision
from threadhold.runner.errors import InvalidInput

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


async def test_a_watch_keeps_its_filter_and_its_place_over_every_way_to_be_cut_off() -> None:
    away = saying({"op": "watch_ended", "thread": "t", "error": {"code": "unavailable", "message": "away"}})
    cuts = showing(1, 2), showing(close=1013), away, showing(4, close=1012), showing(end=True)
    async with scripted(*cuts) as (url, asked):
        seen = await watched(url, after="0-0-0", kinds={"fact", "draft"})
    assert [each.frame.seq for each in seen] == [1, 2, 4, 9]
    assert [ask["kinds"] for ask in asked] == [["draft", "fact"]] * 5
    # Where a watch began is told before its first frame; one that was told nothing stays where it was.
    assert [ask["after"] for ask in asked] == ["0-0-0", "2-1-0", "0-0-0", "0-0-0", "4-1-0"]


async def test_a_watch_of_everything_names_no_kinds() -> None:
    async with scripted(showing(end=True)) as (url, asked):
        await watched(url)
    assert "kinds" not in asked[0]


async def test_kinds_that_cannot_be_chosen_are_a_typed_error(api: Api) -> None:
    async with Client(api.url) as client:
        receipt = await client.send(None, "hi", agent="support")
        for kinds in ([], ["gap"]):
            with pytest.raises(ClientError) as caught:
                await anext(client.watch(receipt.thread, kinds=kinds))  # type: ignore[arg-type]
            assert caught.value.code == "invalid_input"


async def test_a_watch_that_is_cut_off_before_its_first_frame_does_not_jump_ahead() -> None:
    async with scripted(showing(began="7-0-0"), showing(8, end=True)) as (url, asked):
        await watched(url, after="head")
    assert [ask["after"] for ask in asked] == ["head", "7-0-0"]


async def test_a_watch_that_a_replica_ends_for_the_moment_is_taken_up_again() -> None:
    away = saying({"op": "watch_ended", "thread": "t", "error": {"code": "unavailable", "message": "away"}})
    async with scripted(away, showing(6, end=True)) as (url, asked):
        seen = await watched(url, after="5-0-0")
    assert [ask["after"] for ask in asked] == ["5-0-0", "5-0-0"]
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no JSON object"),
        ("7", "no JSON object"),
        ('{"op": "frame"}', "without a cursor"),
        ('{"op": "frame", "cursor": 7}', "without a cursor"),
        ('{"op": "frame", "cursor": "1-1-0"}', "not a Frame"),
    ],
    ids=range(7),
)
async def test_what_no_server_of_ours_says_is_a_typed_error(text: str, said: str) -> None:
    async def garbage(socket: ServerConnection, ask: dict[str, Any]) -> None:
        await socket.send(text)

    async with scripted(garbage) as (url, _):
        with pytest.raises(ClientError, match=said) as caught:
            await watched(url)
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize("op", ["result", "watch_ended"])
async def test_a_refusal_without_the_usual_fields_is_a_typed_error(op: str) -> None:
    async with scripted(saying({"op": op, "ok": False, "error": "no"})) as (url, _):
        with pytest.raises(ClientError) as caught:
            await watched(url)
    assert caught.value.code == "unknown"


async def test_a_watch_whose_beginning_is_not_told_goes_on_from_its_own() -> None:
    async def odd(socket: ServerConnection, ask: dict[str, Any]) -> None:
        await socket.send(json.dumps({"op": "result", "id": ask["id"], "ok": True, "result": [7]}))
        await socket.close()

    async with scripted(odd, showing(end=True)) as (url, asked):
        await watched(url, after="5-0-0")
    assert [ask["after"] for ask in asked] == ["5-0-0", "5-0-0"]


@pytest.mark.parametrize(
    "token", ["hunter2\n", "hunter2\r\nx: y", " hunter2", "hunter2 ", "hünter2", "hunter2\0", ""]
)
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ClientError) as caught:
        Client("http://127.0.0.1:9", token=token)
    assert (caught.value.code, exit_code_of(caught.value.code)) == ("bad_token", USAGE)
    assert "nter2" not in str(caught.value)


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


@asynccontextmanager
async def forgetful(then: Any) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve HTTP: hang up on the first request, and answer the others; yield the URL and the lines asked."""
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
        if len(asked) > 1:
            body = json.dumps(then).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_an_answer_that_was_cut_off_is_given_again() -> None:
    outcome = {
        "request": "q", "thread": "t", "run": "r", "decision": {"kind": "approve"}, "by": "local",
        "duplicate": True, "open": 0, "status": "pending", "seq": 9,
    }  # fmt: skip
    async with forgetful(outcome) as (url, asked), Client(url) as client:
        assert (await client.answer("q", Decision.approve())).duplicate
    assert asked == ["POST /v1/requests/q/answer HTTP/1.1"] * 2


async def test_a_stop_of_everything_is_not_repeated_by_itself() -> None:
    async with forgetful({"items": []}) as (url, asked), Client(url) as client:
        with pytest.raises(ClientError) as caught:
            await client.stop_all()
        assert await client.stop_all() == []
    assert caught.value.code == "unreachable"
    assert asked == ["POST /v1/stop HTTP/1.1"] * 2


async def test_a_stop_of_everything_is_waited_for_longer_than_other_calls() -> None:
    waits: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"items": []})

    async with Client("http://127.0.0.1:9") as client:
        client._http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url=client.url)
        await client.workers()
        await client.stop_all()
    assert waits == [15, 75]


async def test_the_calls_of_operators_return_records(api: Api) -> None:
    api.runner.known_requests["q"] = request_of("q")
    api.runner.known_workers = [worker_of()]
    async with Client(api.url) as client:
        assert await client.runs(status=["running"], agent="support") == [run_of()]
        assert await client.why("run-1") == why_of(run_of())
        assert await client.requests() == [await client.request("q")] == [request_of("q")]
        assert await client.workers() == [worker_of()]
        assert await client.drain("w1") == [worker_of().id]
        with pytest.raises(InvalidInput):
            await client.answer("q", Decision(kind="edit"))
        with pytest.raises(ClientError) as caught:
            await client.request("../../healthz")
    assert caught.value.code in {"not_found", "unknown_path"}


async def test_a_list_that_is_none_is_a_typed_error() -> None:
    async with forgetful({"items": None}) as (url, _), Client(url) as client:
        with pytest.raises(ClientError) as caught:
            await client.workers()
    assert caught.value.code == "bad_answer"


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
