"""Streams and sockets that stay open: whose they are is looked at again, and they end when it is nobody's any more."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import connect

from tests.http.scripted import Api, delivery, serving, until
from tests.http.test_auth import shown
from tests.http.test_problems import assert_problem
from tests.http.test_websocket import Peer
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.http.quotas import Allowance
from threadhold.runner.errors import Unavailable
from threadhold.runner.records import Principal

RECHECK_S = 0.05


class Registry:
    """Knows tokens until they are withdrawn; `fault` is what it raises instead of looking."""

    def __init__(self) -> None:
        self.known = {
            "first": Principal(id="ada", workspace="acme"),
            "second": Principal(id="ada", workspace="acme", roles=frozenset({"user", "operator"})),
            "bobs": Principal(id="bob", workspace="acme"),
        }
        self.fault: Exception | None = None
        self.asked = 0

    async def __call__(self, headers: Mapping[str, str]) -> Principal:
        """Return whose token it is."""
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        token = headers.get("authorization", "").partition(" ")[2]
        if not token:
            raise Unauthenticated("no token", reason="missing")
        if token not in self.known:
            raise Unauthenticated("the token has expired", reason="expired")
        return self.known[token]


@asynccontextmanager
async def office(**options: Any) -> AsyncIterator[tuple[Api, Registry]]:
    """Serve those whom a registry knows."""
    registry = Registry()
    # Nothing here depends on how soon an operation ends whose socket has gone.
    limits = Limits(recheck_s=RECHECK_S, ping_s=0.02, goodbye_s=60)
    async with serving(authenticate=registry, limits=limits, **options) as api:
        yield api, registry


@asynccontextmanager
async def peer(api: Api, token: str = "first") -> AsyncIterator[Peer]:
    """Connect with a token."""
    async with connect(api.ws, additional_headers=shown(token)) as socket:
        yield Peer(socket)


async def looked(registry: Registry, *, times: int = 2) -> None:
    """Wait until the registry was asked so often again."""
    asked = registry.asked
    await until(lambda: registry.asked >= asked + times)


@asynccontextmanager
async def talkative(api: Api, thread: str) -> AsyncIterator[None]:
    """Let a thread have a frame every now and then, as heads come on every thread."""

    async def talk() -> None:
        for seq in range(1, 100_000):
            await api.runner.publish(thread, delivery(thread, seq))
            await asyncio.sleep(0.01)

    talking = asyncio.create_task(talk())
    try:
        yield
    finally:
        talking.cancel()


async def last_event(stream: httpx.Response) -> tuple[str, dict[str, Any]]:
    """Read a stream to its end and return the name and the data of its last event."""
    event, data = "", ""
    async for line in stream.aiter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = line.removeprefix("data: ")
    return event, json.loads(data)


async def test_a_socket_whose_token_is_withdrawn_is_closed_with_the_reason() -> None:
    async with office() as (api, registry), peer(api) as client:
        thread = api.runner.add_thread()
        await client.ask(id=1, op="watch", thread=thread)
        await looked(registry)
        assert (await client.ask(id=2, op="ping"))["ok"]
        del registry.known["first"]
        assert await client.closed() == 4401
        assert client.socket.close_reason == "unauthenticated"
        told = client.seen[-1]
        assert (told["op"], told["id"], told["error"]["code"]) == ("result", None, "unauthenticated")
        assert told["error"]["data"] == {"reason": "expired"}
        await until(lambda: api.runner.watching == 0)


async def test_what_was_asked_for_before_is_still_done() -> None:
    async with office() as (api, registry), peer(api) as client:
        thread = api.runner.add_thread()
        api.runner.send_may_end.clear()
        await client.send(id=1, op="send", thread=thread, content="hi")
        await until(lambda: any(name == "send" for name, _ in api.runner.calls))
        registry.known.clear()
        assert await client.closed() == 4401
        [sending] = [task for task in asyncio.all_tasks() if name_of(task) == "Session._do"]
        api.runner.send_may_end.set()
        await until(sending.done)
        assert not sending.cancelled()
        assert "stop" not in {name for name, _ in api.runner.calls}


def name_of(task: asyncio.Task[Any]) -> str:
    """Return the name of what a task does."""
    return str(getattr(task.get_coro(), "__qualname__", ""))


def going_on(name: str) -> bool:
    """Tell whether some task does this."""
    return any(name_of(task) == name for task in asyncio.all_tasks())


async def test_what_is_asked_for_after_that_is_not_done() -> None:
    async with office() as (api, registry), peer(api) as client:
        thread = api.runner.add_thread()
        assert (await client.ask(id=1, op="watch", thread=thread))["ok"]
        # A peer that takes nothing cannot be told at once, so that its socket stays open for a while.
        client.socket.transport.pause_reading()
        large = {"text": "x" * 100_000}
        await api.runner.publish(thread, *(delivery(thread, seq, data=large) for seq in range(1, 200)))
        registry.known.clear()
        await until(lambda: not going_on("Session._doubt"))
        await client.send(id=2, op="stop", run="run-1", wait=0)
        await client.socket.ping()
        client.socket.transport.resume_reading()
        assert await client.closed() == 4401
        assert "stop" not in {name for name, _ in api.runner.calls}


async def test_a_watch_that_was_being_asked_for_when_its_socket_went_does_not_stay() -> None:
    async with office(allowance=Allowance(watches=1)) as (api, _):
        thread, found = api.runner.add_thread(), asyncio.Event()
        position = api.runner.position

        async def held(*args: Any, **options: Any) -> Any:
            begin = await position(*args, **options)
            await found.wait()
            return begin

        api.runner.position = held  # type: ignore[method-assign]
        async with peer(api) as client:
            await client.send(id=1, op="watch", thread=thread)
            await until(lambda: going_on("Session._do"))
        await until(lambda: not going_on("Session._write"))
        found.set()
        await until(lambda: not going_on("Session._do"))
        await until(lambda: not going_on("Session._show"))
        async with peer(api) as client:
            assert (await client.ask(id=2, op="watch", thread=thread))["ok"]


async def test_a_stream_whose_token_is_withdrawn_ends_with_an_error() -> None:
    async with office() as (api, registry):
        thread = api.runner.add_thread()
        async with (
            talkative(api, thread),
            api.client.stream("GET", f"/v1/threads/{thread}/frames", headers=shown("first")) as stream,
        ):
            await looked(registry)
            del registry.known["first"]
            event, data = await last_event(stream)
        assert (event, data["code"], data["data"]) == ("error", "unauthenticated", {"reason": "expired"})
        await until(lambda: api.runner.watching == 0)


async def test_a_newer_token_keeps_a_socket_open() -> None:
    async with office() as (api, registry), peer(api) as client:
        told = await client.ask(id=1, op="auth", token="second")
        assert told["result"] == {"principal": "ada", "workspace": "acme", "roles": ["operator", "user"]}
        del registry.known["first"]
        await looked(registry)
        assert (await client.ask(id=2, op="ping"))["ok"]
        del registry.known["second"]
        assert await client.closed() == 4401


async def test_a_token_of_somebody_else_is_refused_and_changes_nothing() -> None:
    async with office() as (api, registry), peer(api) as client:
        for token, reason in (("bobs", "other_principal"), ("nobodys", "expired")):
            told = await client.ask(id=1, op="auth", token=token)
            assert (told["error"]["code"], told["error"]["data"]) == ("unauthenticated", {"reason": reason})
        await looked(registry)
        assert (await client.ask(id=2, op="auth"))["result"]["principal"] == "ada"


async def test_a_token_that_is_somebody_elses_by_now_closes() -> None:
    async with office() as (api, registry), peer(api) as client:
        registry.known["first"] = registry.known["bobs"]
        assert await client.closed() == 4401
        assert client.seen[-1]["error"]["data"] == {"reason": "other_principal"}


async def test_roles_are_those_that_one_has_now() -> None:
    async with office() as (api, registry), peer(api, "second") as client:
        assert (await client.ask(id=1, op="auth"))["result"]["roles"] == ["operator", "user"]
        registry.known["second"] = registry.known["first"]
        await looked(registry)
        assert (await client.ask(id=2, op="auth"))["result"]["roles"] == ["user"]


async def test_who_cannot_be_told_for_the_moment_keeps_what_is_open() -> None:
    async with office() as (api, registry), peer(api) as client:
        thread = api.runner.add_thread()
        async with (
            talkative(api, thread),
            api.client.stream("GET", f"/v1/threads/{thread}/frames", headers=shown("first")) as stream,
        ):
            registry.fault = Unavailable("no keys")
            await looked(registry, times=6)
            assert (await client.ask(id=1, op="ping"))["ok"]
            registry.fault = None
            registry.known.clear()
            event, data = await last_event(stream)
        assert (event, data["code"]) == ("error", "unauthenticated")
        assert await client.closed() == 4401


async def test_a_fault_in_telling_closes_as_ours() -> None:
    async with office() as (api, registry), peer(api) as client:
        registry.fault = RuntimeError("oh")
        assert await client.closed() == 1011


async def test_messages_are_bounded_over_all_doors_together() -> None:
    async with office(allowance=Allowance(messages_per_minute=2)) as (api, _), peer(api) as client:
        thread = api.runner.add_thread()
        path, body = f"/v1/threads/{thread}/messages", {"content": "hi"}
        assert (await api.client.post(path, json=body, headers=shown("first"))).status_code == 202
        assert (await client.ask(id=1, op="send", thread=thread, content="hi"))["ok"]
        answer = await api.client.post(path, json=body, headers=shown("first"))
        assert_problem(answer, 429, "rate_limited")
        assert 1 <= int(answer.headers["retry-after"]) <= 30
        first = {"content": "hi", "agent": "support"}
        answer = await api.client.post("/v1/messages", json=first, headers=shown("second"))
        assert_problem(answer, 429, "rate_limited")
        told = await client.ask(id=2, op="send", thread=thread, content="hi")
        assert (told["error"]["code"], told["error"]["retryable"]) == ("rate_limited", True)
        assert sum(name == "send" for name, _ in api.runner.calls) == 2
        # What somebody else sends, and a stop, are none of these.
        assert (await api.client.post(path, json=body, headers=shown("bobs"))).status_code == 202
        api.runner.stop_may_end.set()
        assert (await client.ask(id=3, op="stop", run="run-1"))["ok"]


async def test_open_watches_are_bounded_over_all_doors_together() -> None:
    async with office(allowance=Allowance(watches=2)) as (api, _), peer(api) as client:
        one, two, three = (api.runner.add_thread() for _ in range(3))
        assert (await client.ask(id=1, op="watch", thread=one))["ok"]
        path = f"/v1/threads/{two}/frames"
        async with api.client.stream("GET", path, headers=shown("first")) as stream:
            assert stream.status_code == 200
            assert await client.code(id=2, op="watch", thread=three) == "rate_limited"
            # One that takes the place of another is not one more.
            assert (await client.ask(id=3, op="watch", thread=one))["ok"]
            async with api.client.stream("GET", path, headers=shown("first")) as refused:
                await refused.aread()
                assert_problem(refused, 429, "rate_limited")
            async with api.client.stream("GET", path, headers=shown("bobs")) as other:
                assert other.status_code == 200
        await client.ask(id=4, op="unwatch", thread=one)
        await until(lambda: api.runner.watching == 0)
        for id, thread in enumerate((two, three), start=5):
            assert (await client.ask(id=id, op="watch", thread=thread))["ok"]


async def test_open_sockets_are_bounded() -> None:
    async with office(allowance=Allowance(sockets=1)) as (api, _):
        async with peer(api) as client, peer(api) as refused, peer(api, "bobs") as other:
            assert await refused.closed() == 1013
            assert refused.socket.close_reason == "rate_limited"
            assert refused.seen[0]["error"]["code"] == "rate_limited"
            for each in (client, other):
                assert (await each.ask(id=1, op="ping"))["ok"]

        async def again() -> bool:
            async with peer(api) as client:
                await client.send(id=1, op="ping")
                return bool((await client.next())["ok"])

        while not await again():
            await asyncio.sleep(0.01)
