"""The export as a stream: known as cut wherever it was cut, and taken up again by the client."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from tests.http.records import NOW
from tests.http.scripted import Api, serving, until
from tests.http.test_problems import assert_problem
from threadhold.adapters import exports
from threadhold.adapters.client import Client, ClientError
from threadhold.adapters.http.auth import local_principal
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.runner.errors import Unavailable
from threadhold.runner.exports import ExportedFact, end_line, parse_place
from threadhold.runner.records import Principal

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
Export = Callable[..., AsyncGenerator[ExportedFact, None]]
THREAD: Final = "0195f1f0-0000-7000-8000-000000000001"


def fact_of(seq: int, *, size: int = 1) -> ExportedFact:
    """Return a fact of the thread."""
    return ExportedFact(
        thread=THREAD, seq=seq, run=None, fence=1, kind="said", data={"text": "x" * size}, at=NOW
    )


def script(
    *, size: int = 1, error: Exception | None = None, at: int = 0
) -> tuple[Export, list[Json], asyncio.Event]:
    """Return an export that does not end by itself, how it was called, and what is set when somebody ends it.

    Args:
        size: characters of each fact.
        error: what it raises before the fact `at`.
        at: which.
    """
    calls: list[Json] = []
    ended = asyncio.Event()

    async def endless(**given: Any) -> AsyncGenerator[ExportedFact, None]:
        calls.append(given)
        seq = 0 if given["after"] is None else parse_place(given["after"]).seq
        try:
            while True:
                seq += 1
                if error is not None and seq == at:
                    raise error
                yield fact_of(seq, size=size)
                await asyncio.sleep(0)
        finally:
            ended.set()

    return endless, calls, ended


def put(api: Api, endless: Export) -> None:
    """Let a server export that."""
    api.runner.export = endless  # type: ignore[attr-defined]


@asynccontextmanager
async def reading(api: Api) -> AsyncIterator[AsyncIterator[str]]:
    """Export and yield the lines as they come."""
    async with asyncio.timeout(20), api.client.stream("GET", "/v1/export") as answer:
        assert answer.status_code == 200
        yield answer.aiter_lines()


async def last_of(lines: AsyncIterator[str]) -> tuple[int, Json]:
    """Return how many lines came, and the last one."""
    found = [json.loads(line) async for line in lines]
    return len(found), found[-1]


async def test_a_client_that_goes_ends_it(api: Api) -> None:
    endless, _, ended = script()
    put(api, endless)
    async with reading(api) as lines:
        assert json.loads(await anext(lines))["seq"] == 1
        assert not ended.is_set()
    async with asyncio.timeout(20):
        await ended.wait()


async def test_a_process_that_ends_says_that_there_is_more() -> None:
    async with serving() as api:
        endless, _, ended = script()
        put(api, endless)
        async with reading(api) as lines:
            await anext(lines)
            api.server.should_exit = True
            _, end = await last_of(lines)
        assert (end["end"], end["error"]["code"], end["error"]["retryable"]) == (False, "closed", True)
        await asyncio.wait_for(api.serving, 10)
        assert ended.is_set()


@pytest.mark.parametrize(
    ("error", "code"), [(Unavailable("no database"), "unavailable"), (KeyError("secret"), "internal")]
)
async def test_what_goes_wrong_is_the_last_line_and_no_end(api: Api, error: Exception, code: str) -> None:
    endless, _, _ = script(error=error, at=2000)
    put(api, endless)
    with capture_logs():
        async with reading(api) as lines:
            count, end = await last_of(lines)
    assert (count, end["end"], end["error"]["code"]) == (2000, False, code)
    assert "secret" not in end["error"]["message"]


async def test_what_goes_wrong_before_the_first_line_is_a_problem(api: Api) -> None:
    endless, _, _ = script(error=Unavailable("no database"), at=2)
    put(api, endless)
    assert_problem(await api.client.get("/v1/export"), 503, "unavailable")


async def test_a_peer_that_takes_nothing_is_given_up() -> None:
    async with serving(limits=Limits(write_s=0.3)) as api:
        endless, _, ended = script(size=50_000)
        put(api, endless)
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, limit=1024)
        writer.write(b"GET /v1/export HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        with capture_logs() as logs:
            await until(lambda: any(each["event"] == "export_stalled" for each in logs), within=20)
        # It reads on, and learns why.
        rest = b""
        while b"slow_consumer" not in rest[-4096:]:
            rest += await asyncio.wait_for(reader.read(65_536), 20)
        assert b'{"end":true' not in rest
        writer.transport.abort()
        async with asyncio.timeout(20):
            await ended.wait()


async def test_who_is_nobody_any_more_gets_no_more() -> None:
    looks = 0

    async def authenticate(headers: Any) -> Principal:
        nonlocal looks
        looks += 1
        if looks > 4:
            raise Unauthenticated("it has expired", reason="expired")
        return local_principal()

    async with serving(limits=Limits(recheck_s=0.0), authenticate=authenticate) as api:
        endless, calls, _ = script(size=70_000)
        put(api, endless)
        async with reading(api) as lines:
            count, end = await last_of(lines)
    # It was looked at for the request, behind each fact, and went on where it was.
    assert [call["after"] for call in calls] == [None, f"{THREAD}.1", f"{THREAD}.2", f"{THREAD}.3"]
    assert (count, end["end"], end["error"]["code"]) == (5, False, "unauthenticated")


@asynccontextmanager
async def answering(*parts: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve these bodies, one per connection, each cut off behind it; yield where, and what was asked for."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        body = parts[len(asked) - 1].encode()
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(body), body))
        if body.endswith(b"}\n"):
            # In good order, whether the export is complete or not.
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_the_client_goes_on_where_it_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "DELAY_S", 0.01)
    facts = [fact_of(seq) for seq in range(1, 7)]
    one, two, three, four, five, six = (fact.line() for fact in facts)
    parts = (
        one + two + three[:20],  # in the middle of a line
        three,  # behind one, as if that were all
        '{"end":false,"error":{"code":"slow_consumer","message":"m","retryable":true,"data":{}}}\n',
        four + '{"end":false,"error":{"code":"closed","message":"m","retryable":true,"data":{}}}\n',
        five + six + end_line(2),
    )
    async with answering(*parts) as (url, asked), Client(url) as client:
        assert [fact async for fact in client.export(thread=THREAD)] == facts
    begin = f"/v1/export?thread={THREAD}"
    assert asked == [begin] + [f"{begin}&after={THREAD}.{seq}" for seq in (2, 3, 3, 4)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"end":false,"error":{"code":"not_found","message":"m","retryable":false}}\n', "not_found"),
        (fact_of(1).line() + end_line(2), "bad_answer"),
        ('{"seq":1}\n', "bad_answer"),
        ("7\n", "bad_answer"),
        ("{}\n", "bad_answer"),
        ("nothing", "unreachable"),
    ],
)
async def test_the_client_does_not_go_on_where_that_is_of_no_use(body: str, code: str) -> None:
    async with answering(body) as (url, asked), Client(url) as client:
        with pytest.raises(ClientError) as refused:
            _ = [fact async for fact in client.export()]
    assert (refused.value.code, len(asked)) == (code, 1)
