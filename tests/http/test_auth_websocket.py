"""Who is at the other end of a WebSocket: three ways to say so, and what becomes of those who do not."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from tests.http.records import AGENT
from tests.http.scripted import Api, serving, until
from tests.http.test_auth import TOKENS, shown
from tests.http.test_websocket import Peer
from tests.identity.issuer import secret_token
from tests.support.clocks import put_forward
from threadhold.adapters.http.auth import bearer
from threadhold.adapters.http.doors import Limits
from threadhold.runner.errors import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA = {"principal": "ada", "workspace": "acme", "roles": ["user"]}
V1 = "threadhold.v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_api() -> AsyncIterator[Api]:
    """Serve those who have tokens, for all tests of this file."""
    async with serving(authenticate=bearer(TOKENS)) as running:
        yield running


@asynccontextmanager
async def peer(
    api: Api, *, token: str | None = None, protocols: tuple[str, ...] = (V1,), **options: Any
) -> AsyncIterator[Peer]:
    """Connect, with a token in the header if one is given."""
    headers = shown(token) if token is not None else None
    async with connect(
        api.ws,
        subprotocols=protocols,  # type: ignore[arg-type]
        additional_headers=headers,
        **options,
    ) as socket:
        yield Peer(socket)


async def introduced(client: Peer, token: str | None) -> dict[str, Any]:
    """Return the answer to an introduction."""
    return await client.ask(id="me", op="auth", token=token)


async def test_a_header_says_who_it_is(api: Api) -> None:
    async with peer(api, token=secret_token()) as client:
        assert (await introduced(client, None))["result"] == ADA


async def test_a_subprotocol_says_who_it_is_and_is_not_sent_back(api: Api) -> None:
    token = secret_token()
    for protocols in ((V1, f"threadhold.bearer.{token}"), (f"threadhold.bearer.{token}", V1)):
        async with peer(api, protocols=protocols) as client:
            assert client.socket.subprotocol == V1
            assert client.socket.response is not None
            assert token not in str(client.socket.response.headers)
            assert (await introduced(client, None))["result"] == ADA


async def test_a_header_wins_over_a_subprotocol(api: Api) -> None:
    protocols = (V1, f"threadhold.bearer.{secret_token(sub='bob')}")
    async with peer(api, token=secret_token(), protocols=protocols) as client:
        assert (await introduced(client, None))["result"] == ADA


async def test_the_first_message_says_who_it_is_and_everything_before_is_refused(api: Api) -> None:
    thread = api.runner.add_thread()
    ops: list[dict[str, Any]] = [
        {"op": "send", "thread": thread, "content": "hi"},
        {"op": "send", "agent": AGENT, "content": "hi"},
        {"op": "answer", "request": "r", "decision": {"kind": "approve"}},
        {"op": "stop", "thread": thread},
        {"op": "watch", "thread": thread},
        {"op": "unwatch", "thread": thread},
        {"op": "ping"},
        {"op": "auth"},
        {"op": "nothing"},
    ]
    async with peer(api) as client:
        for id, op in enumerate(ops):
            assert await client.code(id=id, **op) == "unauthenticated"
        await client.socket.send("{")
        assert (await client.next())["error"]["code"] == "unauthenticated"
        assert api.runner.calls == []
        assert await introduced(client, secret_token()) == {
            "op": "result", "id": "me", "ok": True, "result": ADA,
        }  # fmt: skip
        assert (await client.ask(id=1, op="send", thread=thread, content="hi"))["ok"]


async def test_what_follows_an_introduction_at_once_is_done(api: Api) -> None:
    thread = api.runner.add_thread()
    async with peer(api) as client:
        await client.send(id=1, op="auth", token=secret_token())
        await client.send(id=2, op="send", thread=thread, content="hi")
        assert [(await client.next())["ok"] for _ in range(2)] == [True, True]


@pytest.mark.parametrize("way", ["header", "subprotocol", "message"])
async def test_a_bad_token_closes_with_4401_and_its_reason(api: Api, way: str) -> None:
    token = secret_token(exp=1)
    protocols = (V1, f"threadhold.bearer.{token}") if way == "subprotocol" else (V1,)
    async with peer(api, token=token if way == "header" else None, protocols=protocols) as client:
        if way == "message":
            await client.send(id=7, op="auth", token=token)
        assert await client.closed() == 4401
        assert client.socket.close_reason == "unauthenticated"
    told = client.seen[0]
    assert told["id"] == (7 if way == "message" else None)
    assert (told["error"]["code"], told["error"]["data"]) == ("unauthenticated", {"reason": "expired"})
    assert token not in json.dumps(told)
    assert api.runner.calls == []


async def test_who_says_nothing_in_time_is_closed_with_4408() -> None:
    limits = Limits(auth_s=0.2)
    async with serving(authenticate=bearer(TOKENS), limits=limits) as api:
        async with peer(api) as silent:
            assert await silent.closed() == 4408
            assert silent.socket.close_reason == "auth_timeout"
        async with peer(api) as chatty:
            pinging = asyncio.create_task(_ping_on(chatty))
            assert await chatty.closed() == 4408
            pinging.cancel()


async def test_the_time_to_say_who_it_is_has_no_hold_on_a_socket_that_is_known(api: Api) -> None:
    async with peer(api) as quick:
        assert (await introduced(quick, secret_token()))["ok"]
        put_forward(Limits().auth_s + 1)
        assert (await quick.ask(id=1, op="ping"))["ok"]


async def _ping_on(client: Peer) -> None:
    while True:
        await client.send(id=1, op="ping")
        await asyncio.sleep(0.02)


async def test_what_is_no_text_closes_before_anybody_is_known(api: Api) -> None:
    async with peer(api) as client:
        await client.socket.send(b"{}")
        assert await client.closed() == 1003


async def test_a_peer_that_goes_before_it_is_known_leaves_nothing(api: Api) -> None:
    tasks = len(asyncio.all_tasks())
    async with peer(api):
        pass
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_who_cannot_be_told_now_may_come_again() -> None:
    async def authenticate(headers: Any) -> Any:
        raise Unavailable("no keys")

    async with serving(authenticate=authenticate) as api, peer(api) as client:
        assert await client.closed() == 1013
        assert client.seen[0]["error"]["code"] == "unavailable"


async def test_without_identity_everybody_is_local_and_need_not_say_so() -> None:
    async with serving() as api, peer(api, protocols=(V1, "threadhold.bearer.x")) as client:
        assert (await client.ask(id=1, op="ping"))["ok"]
        assert (await introduced(client, "whatever"))["result"]["principal"] == "local"
