"""Server-sent events: format, resuming, batching, signs of life and every way to end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.http.scripted import Api, delivery, serving, until
from threadhold.adapters.http.doors import Limits
from threadhold.fanout.errors import WatchInterrupted
from threadhold.runner.errors import NotFound

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Events:
    """Reads the events of a response; comments and `retry` count as events as well."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._pieces = response.aiter_text()
        self._text = ""

    async def next(self) -> dict[str, str]:
        """Return the next event's fields; a comment is the field without a name."""
        async with asyncio.timeout(5):
            while "\n\n" not in self._text:
                self._text += await anext(self._pieces)
        event, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in event.splitlines())

    async def rest(self) -> str:
        """Return what is left until the server ends the response."""
        async with asyncio.timeout(5):
            return self._text + "".join([piece async for piece in self._pieces])


@asynccontextmanager
async def events(api: Api, thread: str, query: str = "", **headers: str) -> AsyncIterator[Events]:
    """Open an event stream and read its first event."""
    async with api.client.stream("GET", f"/v1/threads/{thread}/frames{query}", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "content-length" not in response.headers
        stream = Events(response)
        assert await stream.next() == {"retry": "2000"}
        yield stream


async def test_a_frame_is_an_event_with_its_cursor_as_id(api: Api) -> None:
    thread = api.runner.add_thread()
    sent = delivery(thread, 7, data={"text": "zwei\nZeilen — ☃"})
    async with events(api, thread) as stream:
        await api.runner.publish(thread, sent)
        event = await stream.next()
    assert event == {"id": "7-1-0", "event": "fact", "data": sent.json()}
    assert json.loads(event["data"])["data"]["text"] == "zwei\nZeilen — ☃"
    assert json.loads(event["data"])["cursor"] == event["id"]


async def test_frames_that_wait_come_in_one_piece(api: Api) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, *(delivery(thread, seq) for seq in range(1, 101)))
    async with events(api, thread) as stream:
        assert [(await stream.next())["id"] for _ in range(100)] == [f"{n}-1-0" for n in range(1, 101)]


async def test_until_idle_it_ends_after_the_end_frame(api: Api) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(
        thread, delivery(thread, 1), delivery(thread, 1, kind="end", data={"state": "idle"})
    )
    async with events(api, thread, "?until=idle") as stream:
        assert (await stream.next())["event"] == "fact"
        assert (await stream.next())["event"] == "end"
        assert await stream.rest() == ""


@pytest.mark.parametrize(
    ("query", "header", "after"),
    [
        ("", None, None),
        ("?after=head", None, "head"),
        ("?after=3-1-0", None, "3-1-0"),
        ("?after=3-1-0", "5-1-0", "5-1-0"),
        ("?after=3-1-0", "null", "3-1-0"),
        ("", "null", None),
    ],
)
async def test_where_it_begins(api: Api, query: str, header: str | None, after: str | None) -> None:
    thread = api.runner.add_thread(seq=9)
    await api.runner.publish(thread, *(delivery(thread, seq) for seq in range(1, 11)))
    headers = {"Last-Event-ID": header} if header else {}
    async with events(api, thread, query, **headers) as stream:
        first = await stream.next()
    begin = {None: 0, "head": 9, "3-1-0": 3, "5-1-0": 5}[after]
    assert first["id"] == f"{begin + 1}-1-0"
    assert ("position", {"thread": thread, "after": after}) in api.runner.calls


async def test_a_browser_that_has_seen_the_end_is_told_to_stay_away(api: Api) -> None:
    thread = api.runner.add_thread(seq=9)
    path = f"/v1/threads/{thread}/frames?until=idle"
    assert (await api.client.get(path, headers={"Last-Event-ID": "9-1-4"})).status_code == 204
    await api.runner.publish(thread, delivery(thread, 9, kind="end"))
    assert (await api.client.get(path, headers={"Last-Event-ID": "8-1-4"})).status_code == 200


async def test_an_interrupted_watch_is_told(api: Api) -> None:
    thread = api.runner.add_thread()
    async with events(api, thread) as stream:
        await until(lambda: api.runner.watching)
        await api.runner.break_watches(WatchInterrupted(thread=thread, cursor="1-1-0", reason="no Postgres"))
        event = await stream.next()
        assert event["event"] == "error"
        assert "id" not in event
        assert json.loads(event["data"])["code"] == "unavailable"
        assert await stream.rest() == ""


async def test_a_bug_in_a_watch_is_told_as_an_id(api: Api) -> None:
    thread = api.runner.add_thread()
    async with events(api, thread) as stream:
        await until(lambda: api.runner.watching)
        with capture_logs() as logs:
            await api.runner.break_watches(KeyError("secret"))
            told: dict[str, Any] = json.loads((await stream.next())["data"])
    assert told["data"]["error_id"] == logs[0]["error_id"]
    assert told["code"] == "internal"
    assert "secret" not in told["message"]


async def test_a_peer_that_goes_ends_its_watch_and_stops_nothing(api: Api) -> None:
    thread = api.runner.add_thread()
    async with events(api, thread):
        await until(lambda: api.runner.watching == 1)
    await until(lambda: api.runner.watching == 0)
    assert "stop" not in {name for name, _ in api.runner.calls}


async def test_who_may_not_see_the_thread_any_more_sees_no_more_of_it() -> None:
    async with serving(limits=Limits(recheck_s=0.0)) as api:
        thread = api.runner.add_thread()
        async with events(api, thread) as stream:
            await api.runner.publish(thread, delivery(thread, 1))
            assert (await stream.next())["id"] == "1-1-0"
            api.runner.raising["thread"] = NotFound("thread", thread)
            await api.runner.publish(thread, delivery(thread, 2))
            event = await stream.next()
            assert event["event"] == "error"
            assert json.loads(event["data"])["code"] == "not_found"


async def test_silence_is_broken_by_a_comment() -> None:
    async with serving(limits=Limits(ping_s=0.01)) as api, events(api, api.runner.add_thread()) as stream:
        assert await stream.next() == {"": "ping"}


async def test_a_stalled_peer_is_given_up() -> None:
    async with serving(limits=Limits(write_s=0.3, outbox_frames=8)) as api:
        thread = api.runner.add_thread()
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, limit=1024)
        writer.write(f"GET /v1/threads/{thread}/frames HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await until(lambda: api.runner.watching == 1)
        large = {"text": "x" * 100_000}
        await api.runner.publish(thread, *(delivery(thread, seq, data=large) for seq in range(1, 201)))
        await until(lambda: api.runner.watching == 0)
        writer.transport.abort()


async def test_a_shutdown_is_said_and_quick() -> None:
    async with serving() as api, events(api, api.runner.add_thread()) as stream:
        api.server.should_exit = True
        event = await stream.next()
        assert event["event"] == "drain"
        assert json.loads(event["data"])["code"] == "draining"
        assert await stream.rest() == ""
        await asyncio.wait_for(api.serving, 3)
        assert api.runner.watching == 0
