"""Runs by the principal that they act for: who may list them, and who may stop them all."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.identity.house import House, open_house
from tests.support.servers import TestServers
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITS = 'call pay {"amount": 50}'
ACTIVE = "status=pending&status=running&status=paused"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(servers: TestServers) -> AsyncIterator[House]:
    """Open one house for all tests of this file."""
    async with open_house(servers) as opened:
        yield opened


async def run_of(house: House, who: str, thread: str) -> str:
    """Return a run that somebody has begun, and that waits for an answer."""
    told, receipt = await house.rest(who, "POST", f"threads/{thread}/messages", {"content": WAITS})
    assert told == "ok", receipt

    async def paused() -> bool:
        return bool((await house.rest(who, "GET", f"runs/{receipt['run']}"))[1]["status"] == "paused")

    await until(paused)
    return str(receipt["run"])


async def listed(house: House, who: str, principal: str) -> set[str]:
    """Return the runs in progress of a principal that somebody sees."""
    told, page = await house.rest(who, "GET", f"runs?{ACTIVE}&principal={principal}&limit=100")
    assert told == "ok", page
    return {run["id"] for run in page["items"]}


async def stopped(house: House, who: str, principal: str | None) -> tuple[str, set[str]]:
    """Stop everything of a principal as somebody; return the code and the runs that were told to."""
    told, body = await house.rest(who, "POST", "stop", {"principal": principal})
    return told, {receipt["run"] for receipt in body.get("items", ())}


async def test_runs_are_listed_by_the_principal_that_they_act_for(house: House) -> None:
    owners, writers = [(await house.quiet()).thread for _ in range(2)]
    own, other = await run_of(house, "owner", owners), await run_of(house, "writer", writers)
    for who in ("owner", "writer", "reader", "operator"):
        assert (own in await listed(house, who, "owner"), other in await listed(house, who, "owner")) == (
            1,
            0,
        )
        assert (own in await listed(house, who, "writer"), other in await listed(house, who, "writer")) == (
            0,
            1,
        )
    assert await listed(house, "stranger", "owner") == await listed(house, "namesake", "owner") == set()
    for id in ("", "%20x", "a%00", "x" * 201):
        told, _ = await house.rest("operator", "GET", f"runs?principal={id}")
        assert told == "invalid_input", id


async def test_only_operators_stop_what_runs_for_somebody_else(house: House) -> None:
    await stopped(house, "operator", None)
    owners, writers = [(await house.quiet()).thread for _ in range(2)]
    own, other = await run_of(house, "owner", owners), await run_of(house, "writer", writers)
    # The owner of its thread may stop the writer's run, but has to name the run or the thread.
    for who, named in (
        ("owner", "writer"),
        ("writer", "owner"),
        ("stranger", "owner"),
        ("approver", "owner"),
    ):
        assert await stopped(house, who, named) == ("forbidden", set()), who
    # The operator of another workspace may name anybody, and reaches nothing here.
    assert await stopped(house, "namesake", "writer") == ("ok", set())
    assert (await listed(house, "operator", "owner"), await listed(house, "operator", "writer")) == (
        {own},
        {other},
    )
    assert await stopped(house, "writer", "writer") == ("ok", {other})
    assert await listed(house, "operator", "owner") == {own}
    assert await stopped(house, "operator", "owner") == ("ok", {own})
    assert await listed(house, "operator", "owner") == set()


async def test_a_principal_that_cannot_be_one_is_refused(house: House) -> None:
    refused: list[Any] = [await stopped(house, "operator", id) for id in ("", " ", "x" * 201)]
    assert refused == [("invalid_input", set())] * 3
