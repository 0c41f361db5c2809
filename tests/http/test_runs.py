"""REST: runs, why they stand where they stand, stops of many, and workers."""

from dataclasses import replace
from typing import Any

import pytest

from tests.http.records import request_of, run_of, why_of, worker_of
from tests.http.scripted import Api
from tests.http.test_problems import assert_problem
from tests.http.test_requests import ids
from threadhold.runner import errors
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import StopReceipt

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_runs_come_in_pages_newest_first(api: Api) -> None:
    api.runner.known_runs = {id: run_of(id) for id in ids(5)}
    pages: list[list[str]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await api.client.get("/v1/runs", params=query)).json()
        pages.append([item["id"] for item in page["items"]])
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    newest_first = list(reversed(ids(5)))
    assert pages == [newest_first[:2], newest_first[2:4], newest_first[4:]]


async def test_runs_are_chosen_by_status_agent_principal_and_thread(api: Api) -> None:
    thread = ids(1)[0]
    chosen = {"agent": "a", "principal": "ada", "thread": thread}
    await api.client.get("/v1/runs", params={"status": ["running", "paused"], **chosen})
    asked = {**chosen, "before": None, "limit": 20}
    assert api.runner.calls == [("runs", {"status": [RunStatus.RUNNING, RunStatus.PAUSED], **asked})]
    await api.client.get("/v1/runs")
    assert api.runner.calls[-1][1]["status"] is None
    for query in ("status=lost", "status=", "agent=", "thread=x"):
        assert_problem(await api.client.get(f"/v1/runs?{query}"), 422, "invalid_input")


async def test_why_tells_all_that_is_known(api: Api) -> None:
    lost = {"cause": "killed", "worker": "w0", "unknown_calls": [{"call_id": "c", "tool": "pay"}]}
    stop = {"by": "ada", "scope": "run"}
    api.runner.reasons["run-1"] = why_of(
        run_of(), lost=(lost,), stop=stop, tools={"c": "unknown"}, requests=(request_of(),), has_worker=False
    )
    told = (await api.client.get("/v1/runs/run-1/why")).json()
    assert told["run"]["id"] == "run-1"
    assert (told["lost"], told["stop"], told["tools"]) == ([lost], stop, {"c": "unknown"})
    assert [request["id"] for request in told["requests"]] == ["request-1"]
    assert told["claim"]["worker"] == "w1-0123456789ab"
    assert told["has_worker"] is False


async def test_all_runs_of_an_agent_are_stopped_at_once(api: Api) -> None:
    api.runner.known_runs = {"a": run_of("a"), "b": run_of("b", agent="other")}
    stopping = await api.client.post("/v1/stop", json={"agent": "other"})
    assert stopping.status_code == 202
    assert [(item["run"], item["settled"]) for item in stopping.json()["items"]] == [("b", False)]
    api.runner.stop_may_end.set()
    stopped = await api.client.post("/v1/stop")
    assert stopped.status_code == 200
    assert [item["run"] for item in stopped.json()["items"]] == ["a", "b"]
    await api.client.post("/v1/stop", json={"principal": "ada"})
    assert [call[1] for call in api.runner.calls] == [
        {"agent": "other", "principal": None},
        {"agent": None, "principal": None},
        {"agent": None, "principal": "ada"},
    ]
    assert_problem(await api.client.post("/v1/stop", json={"run": "a"}), 422, "invalid_input")


async def test_one_run_that_goes_on_is_enough_to_say_so(api: Api) -> None:
    ended = StopReceipt(thread="t", run="a", settled=True, status=RunStatus.STOPPED, seq=3)
    api.runner.stopped = [ended, replace(ended, run="b", settled=False)]
    assert (await api.client.post("/v1/stop")).status_code == 202


async def test_workers_are_listed_and_drained(api: Api) -> None:
    api.runner.known_workers = [worker_of("w1-0123456789ab"), worker_of("w1-ba9876543210", draining=True)]
    items = (await api.client.get("/v1/workers")).json()["items"]
    assert [(item["id"], item["draining"]) for item in items] == [
        ("w1-0123456789ab", False),
        ("w1-ba9876543210", True),
    ]
    assert items[0]["agents"] == ["support", "other"]
    drained = await api.client.post("/v1/workers/w1/drain")
    assert drained.status_code == 202
    assert drained.json() == {"items": ["w1-0123456789ab", "w1-ba9876543210"]}
    assert_problem(await api.client.post("/v1/workers/w2/drain"), 404, "not_found")


async def test_workers_are_for_operators(api: Api) -> None:
    api.runner.raising = {name: errors.OperatorsOnly("do that") for name in ("workers", "drain")}
    assert_problem(await api.client.get("/v1/workers"), 403, "forbidden")
    assert_problem(await api.client.post("/v1/workers/w1/drain"), 403, "forbidden")
