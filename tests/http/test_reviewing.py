"""What is on record over REST, of runs that really ran."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from tests.identity.house import House, open_house
from tests.support.servers import TestServers
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = 'call add {"a": 1, "b": 2} | call reject {"why": "no"} ;; call pay {"amount": 5} ;; say paid'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(servers: TestServers) -> AsyncIterator[House]:
    """Open one house for all tests of this file."""
    async with open_house(servers) as opened:
        yield opened


async def read(house: House, path: str) -> Any:
    """Return what the owner reads at a path."""
    told, body = await house.rest("owner", "GET", path)
    assert told == "ok", body
    return body


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def receipt(house: House) -> dict[str, str]:
    """Return the receipt of a run that calls tools, asks, was allowed to, and has ended."""
    _, receipt = await house.rest("owner", "POST", "messages", {"agent": "scripted", "content": SCRIPT})

    async def asked() -> Any:
        return (await read(house, f"requests?thread={receipt['thread']}"))["items"]

    (request,) = await until(asked)
    (waiting,) = [
        call for call in (await read(house, f"runs/{receipt['run']}/calls"))["items"] if call["request"]
    ]
    assert (waiting["state"], waiting["request"], waiting["started_at"]) == ("waiting", request["id"], None)
    edit = {"kind": "edit", "args": {"amount": 4}}
    told, _ = await house.rest("owner", "POST", f"requests/{request['id']}/answer", edit)
    assert told == "ok"

    async def ended() -> bool:
        return bool((await read(house, f"runs/{receipt['run']}"))["status"] == "completed")

    await until(ended)
    found: dict[str, str] = receipt
    return found


async def test_calls_are_told_with_what_came_of_them(house: House, receipt: dict[str, str]) -> None:
    calls = (await read(house, f"runs/{receipt['run']}/calls"))["items"]
    assert [(call["tool"], call["state"], call["outcome"]) for call in calls] == [
        ("add", "finished", "ok"),
        ("reject", "finished", "retry"),
        ("pay", "finished", "ok"),
    ]
    added, rejected, paid = calls
    assert (added["result"], rejected["error"]) == (3, "no")
    assert (paid["args"], paid["result"]) == ({"amount": 4}, "paid 4 to anybody")
    for call in calls:
        assert call["asked_at"] <= call["started_at"] <= call["ended_at"]
    assert added["seq"] == rejected["seq"] < paid["seq"]


async def test_a_call_that_was_asked_about_in_vain_waits_no_more(house: House) -> None:
    scene = await house.paused()
    (waiting,) = (await read(house, f"runs/{scene.run}/calls"))["items"]
    assert (waiting["state"], waiting["request"]) == ("waiting", scene.request)
    told, stopped = await house.rest("owner", "POST", f"runs/{scene.run}/stop")
    assert (told, stopped["settled"]) == ("ok", True)
    (call,) = (await read(house, f"runs/{scene.run}/calls"))["items"]
    assert (call["state"], call["outcome"]) == ("never_started", None)


async def test_steps_and_attempts_belong_together(house: House, receipt: dict[str, str]) -> None:
    steps = (await read(house, f"runs/{receipt['run']}/steps"))["items"]
    assert [len(step["calls"]) for step in steps] == [2, 1, 0]
    assert steps[-1]["text"] == "paid"
    attempts = (await read(house, f"runs/{receipt['run']}/attempts"))["items"]
    assert [attempt["outcome"] for attempt in attempts] == ["interrupted", "completed"]
    fences = [attempt["fence"] for attempt in attempts]
    assert [step["fence"] for step in steps] == [fences[0], fences[0], fences[1]]


@pytest.mark.parametrize("what", ["facts", "history", "attempts", "steps", "calls"])
async def test_pages_hold_everything_once(house: House, receipt: dict[str, str], what: str) -> None:
    kind = "thread" if what in {"facts", "history"} else "run"
    path = f"{kind}s/{receipt[kind]}/{what}"
    whole = await read(house, f"{path}?limit=100")
    assert whole["next_cursor"] is None
    items: list[Any] = []
    page = await read(house, f"{path}?limit=1")
    pages = 1
    while page["next_cursor"] is not None:
        items += page["items"]
        page = await read(house, f"{path}?limit=1&cursor={page['next_cursor']}")
        pages += 1
    assert [*items, *page["items"]] == whole["items"]
    assert pages > 1
    assert (await read(house, f"{path}?cursor={2**63 - 1}"))["items"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "cursor=-1", "cursor=x", f"cursor={2**63}"])
async def test_pages_that_do_not_exist_are_refused(house: House, receipt: dict[str, str], query: str) -> None:
    for path in (f"threads/{receipt['thread']}/facts", f"runs/{receipt['run']}/calls"):
        told, _ = await house.rest("owner", "GET", f"{path}?{query}")
        assert told == "invalid_input"


async def test_the_history_is_what_pydantic_ai_reads(house: House, receipt: dict[str, str]) -> None:
    page = await read(house, f"threads/{receipt['thread']}/history?limit=100")
    messages = ModelMessagesTypeAdapter.validate_python(page["items"])
    assert sum(isinstance(message, ModelResponse) for message in messages) == 3
