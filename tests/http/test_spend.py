"""What was spent, over REST: to whom it is told, and how."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from tests.http.test_problems import assert_problem
from tests.identity.house import PEOPLE
from tests.identity.issuer import AUDIENCE, ISSUER, SECRET, secret_token
from tests.support.agents import app
from tests.support.servers import TestServers
from tests.support.spent import put_spent
from threadhold.adapters.bootstrap import make_runner, open_parts
from threadhold.adapters.client import Client, ClientError
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.auth import bearer
from threadhold.adapters.http.server import ApiServer, listen
from threadhold.adapters.identity.signed import SignedTokens

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAY: Final = datetime(2026, 5, 1, tzinfo=UTC)
OWN: Final = {
    "scope": "principal",
    "id": "owner",
    "every": "month",
    "since": "2026-05-01T00:00:00Z",
    "model_calls": 2,
    "tool_calls": 1,
    "tokens": 300,
    "money": "0.25",
    "seconds": 1.5,
    "held_tokens": 100,
    "held_money": "0.5",
}


@dataclass(frozen=True)
class Office:
    """An API that asks for tokens, in whose workspace something was spent."""

    client: httpx.AsyncClient
    url: str

    async def get(self, who: str, query: str = "") -> httpx.Response:
        """Ask as somebody."""
        token = secret_token(**PEOPLE[who])
        return await self.client.get(f"/v1/spend{query}", headers={"authorization": f"Bearer {token}"})


async def fill(url: str) -> None:
    """Let something be spent."""
    await put_spent(url, "acme", since=MAY, model_calls=5, tokens=900, money=Decimal(3), seconds=60.0)
    names = ("model_calls", "tool_calls", "tokens", "seconds", "held_tokens")
    spent: dict[str, Any] = {name: OWN[name] for name in names}
    held = Decimal("0.5")
    await put_spent(url, "acme", "owner", since=MAY, money=Decimal("0.25"), held_money=held, **spent)
    await put_spent(url, "acme", "bob/ü", tokens=10)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(servers: TestServers) -> AsyncIterator[Office]:
    """Open one for all tests of this file; nothing runs there."""
    stack = await servers.new_stack()
    tokens = SignedTokens(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)
    async with open_parts(stack.settings()) as parts:
        await fill(stack.database_url)
        runner, drain = make_runner(app, parts), asyncio.Event()
        api = create_api(runner, health=parts.health, drain=drain, authenticate=bearer(tokens))
        server = ApiServer(api, listening=listen("127.0.0.1", 0), drain=drain)
        serving = asyncio.create_task(server.serve())
        url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            yield Office(client, url)
        server.should_exit = True
        await serving
        await runner.aclose()
    await servers.take_back(stack)


async def test_an_operator_is_told_of_all(office: Office) -> None:
    told = await office.get("operator")
    assert (told.status_code, set(told.json())) == (200, {"items"})
    workspace, owner, bob = told.json()["items"]
    assert owner == OWN
    assert (workspace["scope"], workspace["id"], workspace["money"]) == ("workspace", "acme", "3")
    assert (bob["id"], bob["since"], bob["money"], bob["tokens"]) == ("bob/ü", None, "0", 10)
    assert (await office.get("operator", "?limit=1")).json()["items"] == [workspace]
    assert (await office.get("operator", "?principal=bob/%C3%BC")).json()["items"] == [bob]


async def test_others_are_told_of_themselves_and_refused_for_somebody_else(office: Office) -> None:
    for query in ("", "?principal=owner", "?limit=100"):
        assert (await office.get("owner", query)).json() == {"items": [OWN]}
    for who in ("reader", "approver", "stranger", "namesake"):
        assert (await office.get(who)).json() == {"items": []}
    for who in ("owner", "approver"):
        problem = assert_problem(await office.get(who, "?principal=bob/%C3%BC"), 403, "forbidden")
        assert problem["data"] == {"verb": "see what somebody else has spent"}
    assert (await office.client.get("/v1/spend")).status_code == 401


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "principal=", "principal=%00"])
async def test_what_is_out_of_bounds(office: Office, query: str) -> None:
    assert_problem(await office.get("operator", f"?{query}"), 422, "invalid_input")


async def test_the_client_asks_for_it(office: Office) -> None:
    async with Client(office.url, token=secret_token(**PEOPLE["operator"])) as client:
        found = await client.spend()
        assert [each.id for each in found] == ["acme", "owner", "bob/ü"]
        assert (found[1].since, found[1].money, found[2].since) == (MAY, "0.25", None)
        assert await client.spend(principal="owner", limit=1) == [found[1]]
    async with Client(office.url, token=secret_token(**PEOPLE["owner"])) as client:
        with pytest.raises(ClientError) as refused:
            await client.spend(principal="acme")
        assert refused.value.code == "forbidden"
