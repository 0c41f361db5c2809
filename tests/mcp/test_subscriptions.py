"""Changes of resources are told by whichever replica one listens to, whoever caused them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.shared.exceptions import MCPError

from tests.mcp.replicas import Replicas, call, host, principal, read, replica, withdrawn
from threadhold.adapters.http.doors import Limits

pytestmark = pytest.mark.asyncio(loop_scope="package")

AGENT = "scripted"
Gate = Callable[[str], Path]


async def test_changes_are_told_on_the_other_replica(pair: Replicas, gate: Gate) -> None:
    finish = gate("finish")
    async with host(pair.a, "auto") as a, host(pair.b, "auto") as b:
        sent = await call(a, "send", content=f"hold {finish} | say hi", agent=AGENT, wait_s=0)
        run, thread = f"threadhold://runs/{sent['run']}", f"threadhold://threads/{sent['thread']}"
        told: set[str] = set()
        async with b.listen(resource_subscriptions=[run, thread]) as changes:
            assert changes.honored.resource_subscriptions == [run, thread]
            finish.touch()
            async for event in changes:
                assert isinstance(event, ResourceUpdated)
                told.add(event.uri)
                ended = (await read(b, run))["status"] == "completed"
                if ended and told == {run, thread}:
                    break


async def test_neither_old_changes_nor_those_of_another_run_are_told(pair: Replicas) -> None:
    async with host(pair.a, "auto") as a, host(pair.b, "auto") as b:
        sent, last = [await call(a, "send", content="say hi", agent=AGENT) for _ in range(2)]
        run, *threads = f"threadhold://runs/{sent['run']}", *map(thread_uri, (sent, last))
        told: list[str] = []
        async with b.listen(resource_subscriptions=[run, *threads]) as changes:
            await call(a, "send", thread=sent["thread"], content="say again")
            await call(a, "send", thread=last["thread"], content="say last")
            async for event in changes:
                assert isinstance(event, ResourceUpdated)
                told.append(event.uri)
                if event.uri == threads[1]:
                    break
        assert run not in told
        assert told[0] == threads[0]


def thread_uri(sent: dict[str, Any]) -> str:
    """Return the thread of a result as a resource."""
    return f"threadhold://threads/{sent['thread']}"


async def test_nobody_hears_of_what_is_not_theirs(pair: Replicas) -> None:
    async with host(pair.a, "auto") as a:
        sent = await call(a, "send", content="say hi", agent=AGENT)
    foreign = [f"threadhold://threads/{sent['thread']}", f"threadhold://runs/{sent['run']}"]
    async with host(pair.b, "auto", who="eve") as eve:
        for uri in (*foreign, f"threadhold://threads/{uuid4()}", "threadhold://moons/1"):
            with pytest.raises(MCPError) as refused:
                async with eve.listen(resource_subscriptions=[uri]):
                    pass
            assert refused.value.data["code"] == "not_found"


async def test_whose_token_is_withdrawn_hears_no_more(pair: Replicas) -> None:
    who = "carol"
    async with replica(pair.runner, limits=Limits(recheck_s=0)) as url, host(url, "auto", who=who) as c:
        sent = await call(c, "send", content="say hi", agent=AGENT)
        async with c.listen(resource_subscriptions=[thread_uri(sent)]) as changes:
            withdrawn.add(who)
            await pair.runner.send(sent["thread"], "say more", by=principal(who))
            with pytest.raises(SubscriptionLost):
                await anext(aiter(changes))


async def test_subscriptions_are_bounded(pair: Replicas) -> None:
    uris = [f"threadhold://threads/{uuid4()}" for _ in range(101)]
    async with host(pair.a, "auto") as a:
        with pytest.raises(MCPError, match="at most 100"):
            async with a.listen(resource_subscriptions=uris):
                pass


async def test_the_handshake_era_over_http_says_that_it_has_none(pair: Replicas) -> None:
    async with host(pair.a, "legacy") as a:
        assert a.server_capabilities.resources is not None
        assert not a.server_capabilities.resources.subscribe
