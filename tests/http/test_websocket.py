"""The WebSocket: operations, watches, what is refused, and every way to end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.http.message_rules import check_done, check_told
from tests.http.records import AGENT, request_of
from tests.http.scripted import Api, delivery, serving, until
from threadhold.adapters.http.doors import Limits
from threadhold.fanout.errors import WatchInterrupted
from threadhold.runner.errors import NotFound

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Peer:
    """A client that keeps what it has not looked for yet, and holds the server to the schema of its messages."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[dict[str, Any]] = []
        self._sent: dict[Any, dict[str, Any]] = {}

    async def send(self, **op: Any) -> None:
        """Send an op."""
        self._sent[op.get("id")] = op
        await self.socket.send(json.dumps(op))

    async def next(self) -> dict[str, Any]:
        """Return the next message."""
        async with asyncio.timeout(5):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        check_told(message)
        if message.get("ok"):
            check_done(self._sent[message["id"]], message)
        return message

    async def ask(self, **op: Any) -> dict[str, Any]:
        """Send an op and return its answer; other messages are kept in `seen`."""
        await self.send(**op)
        while (message := await self.next()).get("op") != "result" or message["id"] != op.get("id"):
            self.seen.append(message)
        return message

    async def code(self, **op: Any) -> str:
        """Send an op that will be refused and return the code."""
        answer = await self.ask(**op)
        assert answer["ok"] is False
        assert answer["error"]["message"]
        return str(answer["error"]["code"])

    async def closed(self) -> int:
        """Wait until the server closes and return the code."""
        try:
            while True:
                self.seen.append(await self.next())
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006


@asynccontextmanager
async def peer(api: Api, **options: Any) -> AsyncIterator[Peer]:
    """Connect as a client would."""
    async with connect(api.ws, subprotocols=["threadhold.v1"], **options) as socket:  # type: ignore[list-item]
        yield Peer(socket)


async def test_the_subprotocol_is_chosen_and_not_required(api: Api) -> None:
    async with peer(api) as client:
        assert client.socket.subprotocol == "threadhold.v1"
    async with connect(api.ws) as plain:
        assert plain.subprotocol is None
        assert await Peer(plain).ask(id=1, op="ping") == {"op": "result", "id": 1, "ok": True, "result": {}}


async def test_a_send_starts_a_thread_and_a_watch_follows_it(api: Api) -> None:
    async with peer(api) as client:
        sent = await client.ask(id="a", op="send", thread=None, agent=AGENT, content="hi", key="k")
        thread = sent["result"]["thread"]
        assert sent["result"]["disposition"] == "started"
        watched = await client.ask(id=2, op="watch", thread=thread, after=None)
        assert watched["result"] == {"thread": thread, "cursor": "0-0-0"}
        frame = delivery(thread, 1, data={"text": "☃"})
        await api.runner.publish(thread, frame)
        assert await client.next() == {"op": "frame", **json.loads(frame.json())}
        assert api.runner.calls[0][1]["key"] == "k"


async def test_many_threads_on_one_socket(api: Api) -> None:
    threads = [api.runner.add_thread() for _ in range(20)]
    async with peer(api) as client:
        for thread in threads:
            assert (await client.ask(id=thread, op="watch", thread=thread))["ok"]
        for seq in (1, 2, 3):
            for thread in threads:
                await api.runner.publish(thread, delivery(thread, seq))
        frames = [await client.next() for _ in range(60)]
    for thread in threads:
        assert [frame["seq"] for frame in frames if frame["thread"] == thread] == [1, 2, 3]


async def test_a_watch_resumes_where_it_was_told_and_replaces_the_one_before(api: Api) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, *(delivery(thread, seq) for seq in (1, 2, 3)))
    async with peer(api) as client:
        await client.ask(id=1, op="watch", thread=thread, after="2-1-0")
        assert (await client.next())["cursor"] == "3-1-0"
        await client.ask(id=2, op="watch", thread=thread, after="start")
        assert api.runner.watching <= 1
        assert [(await client.next())["seq"] for _ in range(3)] == [1, 2, 3]
        assert (await client.ask(id=3, op="unwatch", thread=thread))["result"]["watched"] is True
        assert (await client.ask(id=4, op="unwatch", thread=thread))["result"]["watched"] is False
        assert api.runner.watching == 0
        assert await client.code(id=5, op="watch", thread=thread, after="x") == "invalid_input"
        assert await client.code(id=6, op="watch", thread="nope") == "not_found"


async def test_until_idle_a_watch_ends_with_its_end_frame(api: Api) -> None:
    thread = api.runner.add_thread()
    await api.runner.publish(thread, delivery(thread, 1, kind="end", data={"state": "idle"}))
    async with peer(api) as client:
        await client.ask(id=1, op="watch", thread=thread, until="idle")
        assert (await client.next())["kind"] == "end"
        assert (await client.ask(id=2, op="ping"))["ok"]
        assert client.seen == []


async def test_a_waiting_stop_does_not_hold_up_a_send(api: Api) -> None:
    thread = api.runner.add_thread()
    async with peer(api) as client:
        await client.send(id="stop", op="stop", thread=thread, wait=30)
        assert (await client.ask(id="send", op="send", thread=thread, content="hi"))["ok"]
        api.runner.stop_may_end.set()
        stopped = await client.next()
        assert (stopped["id"], stopped["result"]["status"]) == ("stop", "stopped")


async def test_sends_to_a_thread_keep_their_order_and_a_stop_comes_after_them(api: Api) -> None:
    one, two = api.runner.add_thread(), api.runner.add_thread()
    api.runner.send_may_end.clear()
    async with peer(api) as client:
        for content in ("a", "b", "c"):
            await client.send(id=content, op="send", thread=one, content=content)
        await client.send(id="stop", op="stop", thread=one, wait=0)
        await client.send(id="two", op="send", thread=two, content="z")
        await until(lambda: len(api.runner.calls) == 2)
        assert [call[1]["content"] for call in api.runner.calls] == ["a", "z"]
        api.runner.send_may_end.set()
        assert {(await client.next())["id"] for _ in range(5)} == {"a", "b", "c", "stop", "two"}
    asked = [call[1].get("content", call[0]) for call in api.runner.calls]
    assert asked == ["a", "z", "b", "c", "stop"]


async def test_operations_in_flight_are_bounded(api: Api) -> None:
    async with peer(api) as client:
        for number in range(Limits().ops):
            await client.send(id=number, op="stop", run="run-1", wait=30)
        assert await client.code(id="over", op="ping") == "overloaded"
        api.runner.stop_may_end.set()
        assert {(await client.next())["id"] for _ in range(Limits().ops)} == set(range(Limits().ops))
        assert (await client.ask(id="again", op="ping"))["ok"]


async def test_watches_are_bounded() -> None:
    async with serving(limits=Limits(watches=2)) as api, peer(api) as client:
        threads = [api.runner.add_thread() for _ in range(3)]
        for thread in threads[:2]:
            assert (await client.ask(id=1, op="watch", thread=thread))["ok"]
        assert await client.code(id=2, op="watch", thread=threads[2]) == "overloaded"
        assert (await client.ask(id=3, op="watch", thread=threads[0]))["ok"]
        await client.ask(id=4, op="unwatch", thread=threads[0])
        assert (await client.ask(id=5, op="watch", thread=threads[2]))["ok"]


@pytest.mark.parametrize(
    ("text", "id", "code"),
    [
        ("{", None, "malformed_json"),
        ("[]", None, "malformed_json"),
        ("[" * 100_000, None, "malformed_json"),
        ('{"id": 1}', 1, "unknown_op"),
        ('{"id": 1, "op": "explode"}', 1, "unknown_op"),
        ('{"id": 1, "op": ["send"]}', 1, "unknown_op"),
        ('{"id": {}, "op": "ping"}', None, "invalid_input"),
        ('{"id": 1, "op": "ping", "extra": 1}', 1, "invalid_input"),
        ('{"id": "\\ud800", "op": "nope\\ud800"}', "\ud800", "unknown_op"),
        ('{"id": 1, "op": "send", "content": 5}', 1, "invalid_input"),
        ('{"id": 1, "op": "send", "content": "hi"}', 1, "invalid_input"),
        ('{"id": 1, "op": "send", "agent": "support", "content": ""}', 1, "invalid_input"),
        ('{"id": 1, "op": "send", "agent": "support", "content": "a\\u0000"}', 1, "invalid_input"),
        ('{"id": 1, "op": "send", "agent": "support", "content": "\\ud800"}', 1, "invalid_input"),
        ('{"id": 1, "op": "send", "agent": "nobody\\ud800", "content": "hi"}', 1, "invalid_input"),
        ('{"id": 1, "op": "send", "agent": "nobody", "content": "hi"}', 1, "unknown_agent"),
        ('{"id": 1, "op": "send", "thread": "nope", "content": "hi"}', 1, "not_found"),
        ('{"id": 1, "op": "send", "thread": "x", "content": "hi", "key": ""}', 1, "invalid_input"),
        ('{"id": 1, "op": "stop", "run": "run-1", "wait": "5"}', 1, "invalid_input"),
        ('{"id": 1, "op": "stop"}', 1, "invalid_input"),
        ('{"id": 1, "op": "stop", "run": "nope"}', 1, "not_found"),
        ('{"id": 1, "op": "answer", "request": "r", "decision": {"kind": "approve"}}', 1, "not_found"),
        ('{"id": 1, "op": "answer", "request": "r", "decision": {"kind": "edit"}}', 1, "invalid_input"),
        ('{"id": 1, "op": "answer", "request": "r", "decision": {"kind": "shrug"}}', 1, "invalid_input"),
        ('{"id": 1, "op": "answer", "request": "r", "decision": "approve"}', 1, "invalid_input"),
    ],
    ids=range(25),
)
async def test_a_refused_message_is_answered_and_the_socket_stays(
    api: Api, text: str, id: object, code: str
) -> None:
    async with peer(api) as client:
        await client.socket.send(text)
        answer = await client.next()
        assert (answer["op"], answer["id"], answer["ok"]) == ("result", id, False)
        assert answer["error"]["code"] == code
        assert (await client.ask(id=2, op="ping"))["ok"]


async def test_a_request_is_answered_once(api: Api) -> None:
    asked = api.runner.known_requests["request-1"] = request_of()
    edit = {"kind": "edit", "args": {"order": "A-1003", "euros": 100}}
    async with peer(api) as client:
        decision = edit | {"args_hash": asked.args_hash}
        answered = await client.ask(id=1, op="answer", request="request-1", decision=decision)
        assert answered["result"]["decision"] == edit
        assert (answered["result"]["status"], answered["result"]["duplicate"]) == ("pending", False)
        again = await client.ask(id=2, op="answer", request="request-1", decision=edit)
        assert again["result"]["duplicate"] is True
        other = {"kind": "reject", "reason": "no"}
        assert await client.code(id=3, op="answer", request="request-1", decision=other) == "already_answered"
    asked_with = [call[1]["args_hash"] for call in api.runner.calls]
    assert asked_with == [asked.args_hash, None, None]


async def test_auth_is_answered_with_who_one_is(api: Api) -> None:
    async with peer(api) as client:
        answer = await client.ask(id=1, op="auth", token="x")
        assert answer["result"] == {
            "principal": "local",
            "workspace": "default",
            "roles": ["approver", "operator", "user"],
        }


async def test_a_huge_message_is_too_much_for_an_answer_and_a_larger_one_for_the_socket(api: Api) -> None:
    async with peer(api) as client:
        code = await client.code(id=1, op="send", agent=AGENT, content="x" * 65_537)
        assert code == "message_too_large"
        await client.socket.send("x" * 300_000)
        assert await client.closed() == 1009


async def test_binary_frames_close_the_socket(api: Api) -> None:
    async with peer(api) as client:
        await client.socket.send(b"{}")
        assert await client.closed() == 1003


async def test_a_bug_is_told_as_an_id(api: Api) -> None:
    api.runner.raising["send"] = RuntimeError("secret detail")
    async with peer(api) as client:
        with capture_logs() as logs:
            answer = await client.ask(id=1, op="send", agent=AGENT, content="hi")
        assert answer["error"]["code"] == "internal"
        assert answer["error"]["data"]["error_id"] == logs[0]["error_id"]
        assert "secret" not in json.dumps(answer)


async def test_an_interrupted_watch_is_told_and_can_be_taken_up_again(api: Api) -> None:
    thread = api.runner.add_thread()
    async with peer(api) as client:
        await client.ask(id=1, op="watch", thread=thread)
        await until(lambda: api.runner.watching)
        await api.runner.break_watches(WatchInterrupted(thread=thread, cursor="1-1-0", reason="no Postgres"))
        ended = await client.next()
        assert (ended["op"], ended["thread"], ended["error"]["code"]) == (
            "watch_ended",
            thread,
            "unavailable",
        )
        api.runner.watch_error = None
        assert (await client.ask(id=2, op="watch", thread=thread))["ok"]


async def test_who_may_not_see_the_thread_any_more_sees_no_more_of_it() -> None:
    async with serving(limits=Limits(recheck_s=0.0)) as api, peer(api) as client:
        thread = api.runner.add_thread()
        await client.ask(id=1, op="watch", thread=thread)
        api.runner.raising["thread"] = NotFound("thread", thread)
        await api.runner.publish(thread, delivery(thread, 1))
        ended = await client.next()
        assert (ended["op"], ended["error"]["code"]) == ("watch_ended", "not_found")


async def test_a_disconnect_stops_nothing_and_what_was_sent_is_done(api: Api) -> None:
    thread = api.runner.add_thread()
    api.runner.send_may_end.clear()
    async with peer(api) as client:
        await client.ask(id=1, op="watch", thread=thread)
        await client.send(id=2, op="send", thread=thread, content="hi")
        await until(lambda: any(name == "send" for name, _ in api.runner.calls))
        await until(lambda: api.runner.watching == 1)
    await until(lambda: api.runner.watching == 0)
    api.runner.send_may_end.set()
    assert "stop" not in {name for name, _ in api.runner.calls}


@pytest.mark.parametrize(
    ("origin", "welcome"),
    [("http://evil.example", False), ("null", False), ("http://localhost:3000", True), (None, True)],
)
async def test_pages_of_other_sites_are_turned_away(api: Api, origin: str | None, welcome: bool) -> None:
    if welcome:
        async with peer(api, origin=origin) as client:
            assert (await client.ask(id=1, op="ping"))["ok"]
        return
    with pytest.raises(InvalidStatus) as refused:
        async with peer(api, origin=origin):
            raise AssertionError("it was let in")
    assert refused.value.response.status_code == 403


async def test_a_shutdown_is_said_after_the_answers() -> None:
    async with serving() as api, peer(api) as client:
        thread = api.runner.add_thread()
        await client.ask(id=1, op="watch", thread=thread)
        api.runner.send_may_end.clear()
        await client.send(id=2, op="send", thread=thread, content="hi")
        await until(lambda: any(name == "send" for name, _ in api.runner.calls))
        api.server.should_exit = True
        await until(api.drain.is_set)
        api.runner.send_may_end.set()
        assert await client.closed() == 1012
        assert [message.get("id", message["op"]) for message in client.seen] == [2, "drain"]
        await asyncio.wait_for(api.serving, 3)
        assert api.runner.watching == 0


async def test_a_stalled_peer_is_cut_off_and_holds_up_nobody() -> None:
    # Long enough for one that is healthy, on a machine that stands still for a moment.
    limits = Limits(write_s=4.0, outbox_frames=8)
    async with serving(limits=limits) as api, peer(api) as healthy, connect(api.ws) as stalled:
        thread = api.runner.add_thread()
        stalled.transport.pause_reading()
        await stalled.send(json.dumps({"op": "watch", "thread": thread}))
        await healthy.ask(id=1, op="watch", thread=thread)
        await until(lambda: api.runner.watching == 2)
        large = {"text": "x" * 100_000}
        await api.runner.publish(thread, *(delivery(thread, seq, data=large) for seq in range(1, 201)))
        with capture_logs() as logs:
            assert [(await healthy.next())["seq"] for _ in range(200)] == list(range(1, 201))
            await until(lambda: api.runner.watching == 1, within=30)
        assert [entry["event"] for entry in logs] == ["socket_stalled"]
        stalled.transport.abort()
