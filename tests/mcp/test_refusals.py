"""What the protocol itself refuses, and the door before it."""

import asyncio
import subprocess
import sys
from uuid import uuid4

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp.replicas import ERAS, NOBODY, Replicas, call, code, host, read, replica
from tests.support.waiting import until
from threadhold.adapters.http.quotas import Allowance

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.parametrize("era", ERAS)
async def test_unknown_tools_and_resources_are_errors_of_the_protocol(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a:
        with pytest.raises(MCPError, match="there is no tool 'fly'; there are send"):
            await a.call_tool("fly", {})
        for uri in (
            "threadhold://moons/1",
            f"threadhold://runs/{uuid4()}",
            f"threadhold://threads/{uuid4()}",
        ):
            with pytest.raises(MCPError) as refused:
                await read(a, uri)
            assert (refused.value.data["code"], refused.value.data["uri"]) == ("not_found", uri)


@pytest.mark.parametrize("era", ERAS)
async def test_resources_of_others_do_not_exist(pair: Replicas, era: str) -> None:
    async with host(pair.a, era) as a:
        sent = await call(a, "send", content="say hi", agent="scripted")
    async with host(pair.b, era, who="eve") as eve:
        for uri in (f"threadhold://runs/{sent['run']}", f"threadhold://threads/{sent['thread']}"):
            with pytest.raises(MCPError) as refused:
                await read(eve, uri)
            assert refused.value.data["code"] == "not_found"


async def test_there_is_no_stream_to_get_and_no_session_to_delete(pair: Replicas) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        for method in ("GET", "DELETE"):
            answer = await http.request(method, f"{pair.a}/mcp")
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
            assert answer.json()["code"] == "method_not_allowed"
        evil = await http.post(f"{pair.a}/mcp", json={}, headers={"origin": "https://evil.example"})
        assert evil.json()["code"] == "origin_refused"
        large = await http.post(f"{pair.a}/mcp", content=b"x" * 300_000)
        assert large.json()["code"] == "body_too_large"


async def test_whoever_shows_no_good_token_learns_nothing(pair: Replicas) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{pair.a}/mcp", json={}, headers={"x-who": NOBODY})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("era", ERAS)
async def test_a_principal_may_have_so_much_and_no_more(pair: Replicas, era: str) -> None:
    allowance = Allowance(messages_per_minute=1, watches=1)
    async with replica(pair.runner, allowance=allowance) as url, host(url, era) as a:
        sent = await call(a, "send", content="say hi", agent="scripted")
        assert await code(a, "send", content="say more", thread=sent["thread"]) == "rate_limited"
        async with host(url, era, who="bob") as b:
            assert (await call(b, "send", content="say hi", agent="scripted"))["status"] == "completed"
        if era == "legacy":
            return
        async with a.listen(resource_subscriptions=[f"threadhold://threads/{sent['thread']}"]):
            assert await code(a, "watch", thread=sent["thread"]) == "rate_limited"

        async def is_free() -> bool:
            return not (await a.call_tool("watch", {"thread": sent["thread"]})).is_error

        await until(is_free)


async def test_a_process_that_nobody_asks_for_it_does_not_load_the_library() -> None:
    look = "import sys; import threadhold.adapters.http.app, threadhold.adapters.mcp.door; print('mcp' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", look, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.strip() == b"False"
