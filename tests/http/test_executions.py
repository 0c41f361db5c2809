"""Executions, checkpoints and replays over REST: what each path does, and one execution that is really tried twice."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.http.records import AGENT, checkpoint_of, execution_of, run_of
from tests.http.scripted import Api, serving, until
from tests.http.test_problems import assert_problem
from tests.identity.house import PEOPLE, House, open_house
from tests.identity.issuer import secret_token
from tests.support.servers import TestServers
from threadhold.adapters.client import Client
from threadhold.adapters.http.quotas import Allowance
from threadhold.runner import errors
from threadhold.runner.machine import RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDS = [f"0195f1f0-0000-7000-8000-00000000000{n}" for n in range(5)]
EXECUTE = ("/v1/executions", {"agent": AGENT, "mission": "find out why"})
REPLAY = ("/v1/runs/run-1/replay", {"checkpoint": "run-1.1"})
# Two answers of the model: the second one is asked for with what the tool returned.
MISSION = 'call add {"a": 1, "b": 2} ;; say three'


def asked(api: Api, method: str) -> list[dict[str, Any]]:
    """Return with what the Runner's method was called."""
    return [arguments for name, arguments in api.runner.calls if name == method]


async def pages(api: Api, path: str, *, size: int) -> list[Any]:
    """Return all items of a list, read in pages of at most `size`."""
    items: list[Any] = []
    query: dict[str, Any] = {"limit": size}
    while True:
        answer = await api.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= size
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        query["cursor"] = page["next_cursor"]


async def test_an_execution_is_accepted_with_a_receipt(api: Api) -> None:
    path, body = EXECUTE
    told = await api.client.post(path, json=body, headers={"Idempotency-Key": "k1"})
    assert (told.status_code, told.headers["location"]) == (202, "/v1/executions/execution-1")
    assert told.json() == {
        "execution": "execution-1",
        "thread": "t",
        "run": "run-1",
        "message": "message-1",
        "seq": 1,
        "duplicate": False,
        "no_worker": False,
    }
    assert api.runner.calls == [("execute", {**body, "key": "k1"})]
    read = await api.client.get(told.headers["location"])
    assert read.json()["execution"]["mission"] == body["mission"]


async def test_a_replay_is_accepted_with_a_receipt(api: Api) -> None:
    path, body = REPLAY
    told = await api.client.post(path, json=body, headers={"Idempotency-Key": "k1"})
    assert (told.status_code, told.headers["location"]) == (202, "/v1/runs/run-2")
    assert told.json() == {
        "thread": "t",
        "run": "run-2",
        "origin": "run-1",
        "checkpoint": "run-1.1",
        "seq": 9,
        "duplicate": False,
        "no_worker": False,
    }
    assert api.runner.calls == [("replay", {"run": "run-1", "checkpoint": "run-1.1", "key": "k1"})]
    made = (await api.client.get(told.headers["location"])).json()
    assert (made["replay_of"], made["replay_from"]) == ("run-1", "run-1.1")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"checkpoint": null}', b"null"])
async def test_a_replay_from_the_beginning_needs_no_body(api: Api, body: bytes) -> None:
    headers = {"content-type": "application/json"} if body else {}
    told = await api.client.post(REPLAY[0], content=body, headers=headers)
    assert told.status_code == 202
    assert asked(api, "replay") == [{"run": "run-1", "checkpoint": None, "key": None}]


@pytest.mark.parametrize(("path", "body", "run"), [(*EXECUTE, "run-1"), (*REPLAY, "run-2")])
async def test_what_was_begun_is_told_once_its_run_rests(
    api: Api, path: str, body: dict[str, Any], run: str
) -> None:
    waiting = asyncio.create_task(api.client.post(path, json=body, headers={"Prefer": "wait=30"}))
    await until(lambda: asked(api, "rested"))
    api.runner.known_runs[run] = run_of(run, status=RunStatus.COMPLETED)
    told = await waiting
    assert (told.status_code, told.json()["run"]) == (200, run)
    assert told.headers["preference-applied"] == "wait=30"
    assert told.headers["location"]
    assert asked(api, "rested") == [{"run": run, "wait": 30}]


@pytest.mark.parametrize(("path", "body"), [EXECUTE, REPLAY])
async def test_what_was_begun_is_never_refused_for_the_waiting(
    api: Api, path: str, body: dict[str, Any]
) -> None:
    api.runner.raising["rested"] = errors.Unavailable("the database does not answer")
    told = await api.client.post(path, json=body, headers={"Prefer": "wait=30"})
    assert told.status_code == 202
    assert "preference-applied" not in told.headers


@pytest.mark.parametrize(("path", "body"), [EXECUTE, REPLAY])
async def test_what_begins_a_run_is_counted_among_the_messages(path: str, body: dict[str, Any]) -> None:
    async with serving(allowance=Allowance(messages_per_minute=1)) as api:
        assert (await api.client.post(path, json=body)).status_code == 202
        refused = await api.client.post(path, json=body)
        assert_problem(refused, 429, "rate_limited")
        assert refused.headers["retry-after"]
        assert [name for name, _ in api.runner.calls] == ["execute" if "mission" in body else "replay"]


async def test_executions_their_threads_and_checkpoints_come_in_pages(api: Api) -> None:
    api.runner.known_executions = {id: execution_of(id) for id in IDS}
    api.runner.threads_in = IDS
    api.runner.known_checkpoints = {id: checkpoint_of(id) for id in ("run-1.1", "run-1.2", "run-1.5")}
    found = {
        path: [item["id"] for item in await pages(api, path, size=2)]
        for path in ("/v1/executions", f"/v1/executions/{IDS[0]}/threads", "/v1/runs/run-1/checkpoints")
    }
    assert list(found.values()) == [IDS[::-1], IDS, ["run-1.1", "run-1.2", "run-1.5"]]
    history = await pages(api, "/v1/checkpoints/run-1.1/history", size=1)
    assert [message["kind"] for message in history] == ["request", "response"]


@pytest.mark.parametrize("path", ["/v1/executions/execution-1", "/v1/checkpoints/run-1.1"])
async def test_what_has_not_changed_is_not_sent_again(api: Api, path: str) -> None:
    first = await api.client.get(path)
    tag = first.headers["etag"]
    again = await api.client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert first.headers["cache-control"] == "private, no-cache"


async def test_an_execution_changes_with_its_runs(api: Api) -> None:
    path = "/v1/executions/execution-1"
    tag = (await api.client.get(path)).headers["etag"]
    api.runner.known_runs["run-1"] = replace(api.runner.known_runs["run-1"], attempt=2)
    assert (await api.client.get(path, headers={"If-None-Match": tag})).status_code == 200


async def test_a_thread_may_belong_to_an_execution(api: Api) -> None:
    made = await api.client.post("/v1/threads", json={"agent": AGENT, "execution": IDS[0]})
    assert (made.status_code, made.json()["execution"]) == (201, IDS[0])
    alone = await api.client.post("/v1/threads", json={"agent": AGENT})
    assert (alone.status_code, alone.json()["execution"]) == (201, None)
    refused = await api.client.post("/v1/threads", json={"agent": AGENT, "execution": "nope"})
    assert assert_problem(refused, 422, "invalid_input")["data"]["field"] == "body.execution"


async def test_unknown_things_are_not_found(api: Api) -> None:
    for path in (
        "executions/nope",
        "executions/nope/threads",
        "runs/nope/checkpoints",
        "checkpoints/nope",
        "checkpoints/nope/history",
    ):
        assert_problem(await api.client.get(f"/v1/{path}"), 404, "not_found")
    assert_problem(await api.client.post("/v1/runs/nope/replay"), 404, "not_found")
    told = await api.client.post("/v1/runs/run-1/replay", json={"checkpoint": "nope"})
    assert_problem(told, 404, "not_found")
    told = await api.client.post("/v1/executions", json={"agent": "nobody", "mission": "x"})
    assert_problem(told, 404, "unknown_agent")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/executions", {"agent": AGENT}),
        ("/v1/executions", {"agent": AGENT, "mission": " "}),
        ("/v1/executions", {"agent": AGENT, "mission": 5}),
        ("/v1/executions", {"agent": AGENT, "mission": "x", "on_busy": "queue"}),
        (REPLAY[0], {"checkpoint": 5}),
        (REPLAY[0], {"checkpoint": "x" * 81}),
        (REPLAY[0], {"from": "run-1.1"}),
        (REPLAY[0], []),
    ],
)
async def test_bodies_of_the_wrong_shape(api: Api, path: str, body: Any) -> None:
    assert_problem(await api.client.post(path, json=body), 422, "invalid_input")
    assert not api.runner.known_runs.get("run-2")


async def test_a_huge_mission_and_a_bad_key_or_page(api: Api) -> None:
    path, body = EXECUTE
    assert_problem(
        await api.client.post(path, json=body | {"mission": "x" * 65_537}), 413, "message_too_large"
    )
    for path, body in (EXECUTE, REPLAY):
        told = await api.client.post(path, json=body, headers={"Idempotency-Key": "k" * 129})
        assert assert_problem(told, 422, "invalid_input")["data"]["field"] == "key"
    for path in ("executions", "executions/execution-1/threads", "runs/run-1/checkpoints"):
        for query in ("limit=0", "limit=101", "cursor=x"):
            assert_problem(await api.client.get(f"/v1/{path}?{query}"), 422, "invalid_input")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.NotReplayable("run-1", "it has not ended"), 409),
        (errors.ActsForAnother("replay it"), 403),
        (errors.Forbidden("replay"), 403),
        (errors.ThreadBusy("run-3"), 409),
        (errors.ThreadArchived("t"), 409),
        (errors.KeyConflict("k"), 409),
    ],
    ids=lambda value: getattr(value, "code", None),
)
async def test_a_refused_replay_says_why(api: Api, error: errors.RunnerError, status: int) -> None:
    api.runner.raising["replay"] = error
    problem = assert_problem(await api.client.post(REPLAY[0]), status, error.code)
    assert (problem["detail"], problem["data"]) == (error.message, error.data)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(servers: TestServers) -> AsyncIterator[House]:
    """Open one house for all tests of this file that need one."""
    async with open_house(servers) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def owner(house: House) -> AsyncIterator[Client]:
    """Return a client that calls as the owner."""
    token = secret_token(**PEOPLE["owner"])
    async with Client(f"http://127.0.0.1:{house.port}", token=token) as client:
        yield client


async def begun(house: House, path: str, body: dict[str, Any], key: str) -> httpx.Response:
    """Begin something as the owner, and wait until its run rests."""
    headers = {"authorization": f"Bearer {secret_token(**PEOPLE['owner'])}", "prefer": "wait=20"}
    return await house.client.post(path, json=body, headers=headers | {"idempotency-key": key})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tried(house: House) -> dict[str, str]:
    """Return the receipt of an execution whose run has completed."""
    mission = {"agent": "scripted", "mission": MISSION}
    told, again = [await begun(house, "/v1/executions", mission, "mission-1") for _ in range(2)]
    assert (told.status_code, told.headers["preference-applied"]) == (200, "wait=20"), told.text
    receipt: dict[str, str] = told.json()
    assert again.json() == receipt | {"duplicate": True}
    assert told.headers["location"] == again.headers["location"] == f"/v1/executions/{receipt['execution']}"
    return receipt


async def test_checkpoints_are_what_the_model_had_been_shown_by_then(
    owner: Client, tried: dict[str, str]
) -> None:
    reached = (await owner.checkpoints(tried["run"])).items
    begin, *_, end = reached
    assert (begin.parent, begin.ends_in, end.ends_in) == (None, "request", "response")
    assert [each.parent for each in reached[1:]] == [each.id for each in reached[:-1]]
    for each in reached:
        assert await owner.checkpoint(each.id) == each
    lengths = [len((await owner.history_at(each.id)).items) for each in reached]
    assert lengths == [sum(each.messages for each in reached[: n + 1]) for n in range(len(reached))]
    first = await owner.history_at(end.id, limit=1)
    assert [*first.items, *(await owner.history_at(end.id, after=first.next or 0)).items] == (
        await owner.history_at(end.id)
    ).items


async def test_an_execution_is_tried_again(house: House, owner: Client, tried: dict[str, str]) -> None:
    before = await owner.execution(tried["execution"])
    assert (before.execution.mission, before.execution.status) == (MISSION, RunStatus.COMPLETED)
    assert (before.execution.result, before.cut_short) == ("three", False)
    ((run,),) = [part.runs for part in before.threads]
    assert (run.run.id, run.run.output, len(run.attempts)) == (tried["run"], "three", 1)

    path, reached = f"/v1/runs/{tried['run']}/replay", (await owner.checkpoints(tried["run"])).items
    refused = await begun(house, path, {"checkpoint": reached[-1].id}, "replay-0")
    assert_problem(refused, 409, "not_replayable")
    # Behind what the tool returned.
    place = {"checkpoint": [each.id for each in reached if each.ends_in == "request"][-1]}
    told, again = [await begun(house, path, place, "replay-1") for _ in range(2)]
    assert (told.status_code, told.headers["preference-applied"]) == (200, "wait=20"), told.text
    made = told.json()
    assert told.headers["location"] == again.headers["location"] == f"/v1/runs/{made['run']}"
    assert (made["duplicate"], again.json()["duplicate"]) == (False, True)
    other = await begun(house, path, {"checkpoint": reached[0].id}, "replay-1")
    assert_problem(other, 409, "key_conflict")

    after = await owner.execution(tried["execution"])
    ((newest, oldest),) = [part.runs for part in after.threads]
    assert (newest.run.id, newest.run.output) == (made["run"], "three")
    assert (newest.run.replay_of, newest.run.replay_from) == (tried["run"], place["checkpoint"])
    assert oldest == run
    assert (await owner.calls(made["run"])).items == []


async def test_threads_are_added_to_an_execution(house: House, owner: Client) -> None:
    first = await owner.execute("scripted", "say one")
    told, other = await house.rest(
        "owner", "POST", "threads", {"agent": "scripted", "execution": first.execution}
    )
    assert (told, other["execution"]) == ("ok", first.execution)
    threads = await owner.threads_of(first.execution)
    assert {thread.id for thread in threads} == {first.thread, other["id"]}
    assert await owner.threads_of(first.execution, after=threads[0].id) == threads[1:]
    assert first.execution in {each.id for each in await owner.executions(limit=100)}
    told, _ = await house.rest(
        "stranger", "POST", "threads", {"agent": "scripted", "execution": first.execution}
    )
    assert told == "not_found"
