"""Grants over REST: what each path does, and to whom."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.http.test_problems import assert_problem
from tests.identity.house import PEOPLE, House, open_house
from tests.identity.issuer import secret_token
from tests.support.servers import TestServers
from threadhold.adapters.client import Client, ClientError
from threadhold.adapters.http.errors import refusal
from threadhold.runner.errors import GrantsFull

pytestmark = pytest.mark.asyncio(loop_scope="module")

WIRE: Final = {"capability": "wire", "uses": 3}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(servers: TestServers) -> AsyncIterator[House]:
    """Open one house for all tests of this file."""
    async with open_house(servers) as opened:
        yield opened


async def call(
    house: House, who: str, method: str, path: str, body: Any = None, **headers: str
) -> httpx.Response:
    """Call as somebody."""
    token = {"authorization": f"Bearer {secret_token(**PEOPLE[who])}"}
    return await house.client.request(method, f"/v1/{path}", json=body, headers=token | headers)


async def granted(house: House, **terms: Any) -> dict[str, Any]:
    """Grant something as the operator."""
    told = await call(house, "operator", "POST", "grants", {**WIRE, **terms})
    assert told.status_code == 201, told.text
    made: dict[str, Any] = told.json()
    return made


async def test_a_grant_is_made_read_and_revoked(house: House) -> None:
    body = {**WIRE, "principal": "owner", "expires_in": 3600, "reason": "the bills of May"}
    told = await call(house, "operator", "POST", "grants", body, **{"idempotency-key": "k1"})
    made = told.json()
    assert (told.status_code, told.headers["location"]) == (201, f"/v1/grants/{made['id']}")
    assert made == {
        "id": made["id"],
        "workspace": "acme",
        "capability": "wire",
        "principal": "owner",
        "thread": None,
        "uses": 3,
        "used": 0,
        "status": "usable",
        "granted_by": "operator",
        "reason": "the bills of May",
        "created_at": made["created_at"],
        "expires_at": made["expires_at"],
        "revoked_at": None,
        "revoked_by": None,
    }
    again = await call(house, "operator", "POST", "grants", body, **{"idempotency-key": "k1"})
    assert (again.status_code, again.json()) == (201, made)
    other = await call(house, "operator", "POST", "grants", WIRE, **{"idempotency-key": "k1"})
    assert_problem(other, 409, "key_conflict")

    path = f"grants/{made['id']}"
    read = await call(house, "owner", "GET", path)
    tag = read.headers["etag"]
    assert (read.json(), read.headers["cache-control"]) == (made, "private, no-cache")
    unchanged = await call(house, "owner", "GET", path, **{"if-none-match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    revoked = [await call(house, "operator", "POST", f"{path}/revoke") for _ in range(2)]
    assert [told.status_code for told in revoked] == [200, 200]
    assert revoked[0].json() == revoked[1].json()
    assert (revoked[0].json()["status"], revoked[0].json()["revoked_by"]) == ("revoked", "operator")
    changed = await call(house, "owner", "GET", path, **{"if-none-match": tag})
    assert (changed.status_code, changed.json()) == (200, revoked[0].json())


async def test_who_may(house: House) -> None:
    scene = await house.quiet()
    made = {
        "owner": await granted(house, principal="owner"),
        "thread": await granted(house, thread=scene.thread),
        "everybody": await granted(house),
    }
    sees = {
        "owner": {"owner", "thread", "everybody"},
        "reader": {"thread", "everybody"},
        "stranger": {"everybody"},
        "approver": {"everybody"},
        "operator": set(made),
        "namesake": set(),
    }
    for who, seen in sees.items():
        listed = {item["id"] for item in (await call(house, who, "GET", "grants?limit=100")).json()["items"]}
        assert {name for name, grant in made.items() if grant["id"] in listed} == seen, who
        for name, grant in made.items():
            told = (await house.rest(who, "GET", f"grants/{grant['id']}"))[0]
            assert told == ("ok" if name in seen else "not_found"), (who, name)
            if who != "operator":
                expected = "not_found" if who == "namesake" else "forbidden"
                assert (await house.rest(who, "POST", f"grants/{grant['id']}/revoke"))[0] == expected
        if who not in ("operator", "namesake"):
            assert (await house.rest(who, "POST", "grants", WIRE))[0] == "forbidden"
    foreign = {**WIRE, "thread": scene.thread}
    assert (await house.rest("namesake", "POST", "grants", foreign))[0] == "not_found"
    _, kept = await house.rest("operator", "GET", f"grants/{made['everybody']['id']}")
    assert kept["status"] == "usable"


async def test_grants_come_in_pages(house: House) -> None:
    made = [(await granted(house))["id"] for _ in range(3)]
    found: list[str] = []
    query = "grants?limit=2"
    while query:
        page = (await call(house, "operator", "GET", query)).json()
        assert len(page["items"]) <= 2
        found += [item["id"] for item in page["items"]]
        query = f"grants?limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert found[:3] == made[::-1]
    assert found == sorted(set(found), reverse=True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"uses": 0}, "body.uses"),
        ({"uses": 1_000_001}, "body.uses"),
        ({"uses": "3"}, "body.uses"),
        ({"uses": 1.5}, "body.uses"),
        ({"uses": True}, "body.uses"),
        ({"uses": None}, "body.uses"),
        ({"capability": ""}, "capability"),
        ({"capability": "x" * 201}, "capability"),
        ({"principal": "\t"}, "principal"),
        ({"thread": "nope"}, "body.thread"),
        ({"expires_in": 0.5}, "body.expires_in"),
        ({"expires_in": 315_360_001}, "body.expires_in"),
        ({"expires_in": "1h"}, "body.expires_in"),
        ({"reason": "x" * 1001}, "body.reason"),
        ({"reason": "\x00"}, "reason"),
        ({"granted_by": "ada"}, "body.granted_by"),
    ],
)
async def test_what_is_out_of_bounds(house: House, changes: dict[str, Any], field: str) -> None:
    told = await call(house, "operator", "POST", "grants", {**WIRE, **changes})
    assert assert_problem(told, 422, "invalid_input")["data"]["field"] == field


async def test_a_whole_number_may_be_written_with_a_fraction(house: House) -> None:
    assert (await granted(house, uses=4.0))["uses"] == 4


async def test_what_is_not_there(house: House) -> None:
    for method, path in (("GET", "grants/{}"), ("POST", "grants/{}/revoke")):
        for id in ("nope", uuid4()):
            assert_problem(await call(house, "operator", method, path.format(id)), 404, "not_found")
    told = await call(house, "operator", "POST", "grants", {**WIRE, "thread": str(uuid4())})
    assert assert_problem(told, 404, "not_found")["data"]["what"] == "thread"
    for query in ("limit=0", "limit=101", "cursor=x"):
        assert_problem(await call(house, "operator", "GET", f"grants?{query}"), 422, "invalid_input")


async def test_too_many_are_told_as_a_conflict() -> None:
    told = refusal(GrantsFull(1000))
    assert (told.status, told.code, told.data, told.retryable) == (409, "grants_full", {"limit": 1000}, False)


async def test_the_client_does_it_all(house: House) -> None:
    scene = await house.quiet()
    token = secret_token(**PEOPLE["operator"])
    async with Client(f"http://127.0.0.1:{house.port}", token=token) as client:
        terms: dict[str, Any] = {
            "uses": 2,
            "principal": "owner",
            "thread": scene.thread,
            "expires_in": timedelta(minutes=5),
            "reason": "why",
        }
        made = await client.create_grant("call", key="k", **terms)
        assert await client.create_grant("call", key="k", **terms) == made
        assert (made.principal, made.thread, made.reason) == ("owner", scene.thread, "why")
        assert made.expires_at == made.created_at + timedelta(minutes=5)
        plain = await client.create_grant("call", uses=1)
        assert (plain.principal, plain.thread, plain.expires_at, plain.reason) == (None, None, None, "")
        assert await client.grant(made.id) == made
        assert [each.id for each in await client.grants(limit=2)] == [plain.id, made.id]
        assert [each.id for each in await client.grants(before=plain.id, limit=1)] == [made.id]
        revoked = await client.revoke_grant(made.id)
        assert (revoked.status, await client.grant(made.id)) == ("revoked", revoked)
        with pytest.raises(ClientError) as refused:
            await client.grant("nope")
        assert refused.value.code == "not_found"
