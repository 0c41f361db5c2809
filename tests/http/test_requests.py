"""REST: the requests of paused runs, and their answers."""

from typing import Any

import pytest

from tests.http.records import ARGS, request_of
from tests.http.scripted import Api
from tests.http.test_problems import assert_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = "/v1/requests/request-1/answer"


def ids(count: int) -> list[str]:
    """Return ids, oldest first."""
    return [f"0195f1f0-0000-7000-8000-{number:012}" for number in range(count)]


async def test_open_requests_come_in_pages_newest_first(api: Api) -> None:
    api.runner.known_requests = {id: request_of(id) for id in ids(5)}
    api.runner.known_requests["answered"] = request_of("answered", status="answered")
    pages: list[list[str]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await api.client.get("/v1/requests", params=query)).json()
        pages.append([item["id"] for item in page["items"]])
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    newest_first = list(reversed(ids(5)))
    assert pages == [newest_first[:2], newest_first[2:4], newest_first[4:]]


async def test_requests_are_chosen_by_status_and_thread(api: Api) -> None:
    api.runner.known_requests = {"a": request_of("a"), "b": request_of("b", status="denied")}
    thread = ids(1)[0]
    for query, status, count in (("", "open", 1), ("?status=denied", "denied", 1), ("?status=any", None, 2)):
        page = await api.client.get(f"/v1/requests{query}")
        assert len(page.json()["items"]) == count
        assert api.runner.calls[-1][1]["status"] == status
    await api.client.get("/v1/requests", params={"thread": thread})
    assert api.runner.calls[-1][1]["thread"] == thread
    assert_problem(await api.client.get("/v1/requests?status=lost"), 422, "invalid_input")
    assert_problem(await api.client.get("/v1/requests?thread=x"), 422, "invalid_input")


async def test_a_request_shows_what_is_asked_for(api: Api) -> None:
    asked = api.runner.known_requests["request-1"] = request_of(approvers=("ada", "bob"))
    shown = (await api.client.get("/v1/requests/request-1")).json()
    assert (shown["kind"], shown["tool"], shown["args"]) == ("approval", "refund", ARGS)
    assert (shown["args_hash"], shown["approvers"]) == (asked.args_hash, ["ada", "bob"])
    assert shown["created_at"] == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    "decision",
    [
        {"kind": "approve"},
        {"kind": "edit", "args": {"euros": 5}},
        {"kind": "reject"},
        {"kind": "reject", "reason": "too much"},
        {"kind": "reply", "value": {"any": ["json", 1, None]}},
        {"kind": "reply", "value": False},
    ],
    ids=range(6),
)
async def test_a_decision_reaches_the_runner_as_it_is(api: Api, decision: dict[str, Any]) -> None:
    asked = api.runner.known_requests["request-1"] = request_of()
    answer = await api.client.post(ANSWER, json={**decision, "args_hash": asked.args_hash})
    assert answer.status_code == 200
    assert answer.json() == {
        "request": "request-1",
        "thread": "t",
        "run": "run-1",
        "decision": decision,
        "by": "local",
        "duplicate": False,
        "open": 0,
        "status": "pending",
        "seq": 9,
    }
    asked_with = {"request": "request-1", "decision": decision, "args_hash": asked.args_hash}
    assert api.runner.calls == [("answer", asked_with)]


async def test_the_same_answer_may_be_repeated_and_another_one_conflicts(api: Api) -> None:
    api.runner.known_requests["request-1"] = request_of()
    assert (await api.client.post(ANSWER, json={"kind": "approve"})).json()["duplicate"] is False
    assert (await api.client.post(ANSWER, json={"kind": "approve"})).json()["duplicate"] is True
    problem = assert_problem(await api.client.post(ANSWER, json={"kind": "reject"}), 409, "already_answered")
    assert problem["data"]["decision"] == {"kind": "approve"}
    assert problem["retryable"] is False


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "maybe"},
        {"kind": "approve", "args": {}},
        {"kind": "edit"},
        {"kind": "edit", "args": ["x"]},
        {"kind": "reply"},
        {"kind": "reply", "value": "x" * 70_000},
        {"kind": "reject", "reason": 5},
        {"kind": "approve", "args_hash": "zz"},
        {"kind": "approve", "surprise": 1},
    ],
    ids=range(10),
)
async def test_a_decision_that_is_none_changes_nothing(api: Api, body: dict[str, Any]) -> None:
    api.runner.known_requests["request-1"] = request_of()
    assert_problem(await api.client.post(ANSWER, json=body), 422, "invalid_input")
    assert api.runner.known_requests["request-1"].answer is None


async def test_a_reply_must_not_be_nested_without_end(api: Api) -> None:
    api.runner.known_requests["request-1"] = request_of()
    # How deep the interpreter itself can read depends on what is below it.
    for levels, statuses in ((32, {200}), (33, {422}), (900, {400, 422})):
        deep = b'{"kind":"reply","value":' + b"[" * levels + b"]" * levels + b"}"
        answer = await api.client.post(ANSWER, content=deep, headers={"content-type": "application/json"})
        assert answer.status_code in statuses
        api.runner.known_requests["request-1"] = request_of()


async def test_a_request_of_somebody_else_is_not_there(api: Api) -> None:
    assert_problem(await api.client.get("/v1/requests/nope"), 404, "not_found")
    assert_problem(
        await api.client.post("/v1/requests/nope/answer", json={"kind": "approve"}), 404, "not_found"
    )
