"""Resolving a thread over REST."""

from typing import Any

import pytest

from tests.http.records import AGENT
from tests.http.scripted import Api
from tests.http.test_problems import assert_problem
from threadhold.runner.errors import ThreadArchived
from threadhold.runner.memory import MemoryBinding

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/threads/0195f1f0-0000-7000-8000-000000000009"
NOTES = {"connector": "notes", "instance": "eu", "scope": "customer-7"}


async def test_a_thread_is_made_and_then_found_with_what_was_added(api: Api) -> None:
    body = {"agent": AGENT, "participants": ["billing"], "memory": [NOTES], "state_refs": ["s1"]}
    made = await api.client.put(PATH, json=body)
    assert (made.status_code, made.json()["memory"]) == (201, [NOTES])
    assert (made.json()["participants"], made.json()["state_refs"]) == (["billing"], ["s1"])
    again = await api.client.put(PATH, json=body)
    assert (again.status_code, again.json()) == (200, made.json())
    read = await api.client.get(PATH)
    assert (read.json(), read.headers["etag"]) == (made.json(), made.headers["etag"])
    asked = [arguments for name, arguments in api.runner.calls if name == "resolve_thread"]
    assert asked[0]["memory"] == [MemoryBinding("notes", "eu", "customer-7")]
    assert asked[0]["status"] is None


async def test_another_agent_is_a_mismatch(api: Api) -> None:
    await api.client.put(PATH, json={"agent": AGENT})
    refused = await api.client.put(PATH, json={"agent": "other"})
    assert_problem(refused, 409, "thread_mismatch")
    assert_problem(await api.client.put(PATH, json={"agent": "nobody"}), 404, "unknown_agent")
    api.runner.raising["resolve_thread"] = ThreadArchived(PATH)
    assert_problem(await api.client.put(PATH, json={"agent": AGENT}), 409, "thread_archived")


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": None},
        {"participants": "billing"},
        {"memory": [{"connector": "notes"}]},
        {"memory": [NOTES | {"more": 1}]},
        {"state_refs": ["s"] * 101},
        {"status": "gone"},
    ],
)
async def test_a_body_of_another_shape_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    assert_problem(await api.client.put(PATH, json={"agent": AGENT} | wrong), 422, "invalid_input")
