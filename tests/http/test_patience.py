"""`Prefer: wait=N`: an answer that waits until the run rests, and never refuses because it cannot."""

import asyncio
from typing import Any

import pytest

from tests.http.records import run_of
from tests.http.scripted import Api, serving, until
from threadhold.adapters.http.patience import wait_of
from threadhold.adapters.http.quotas import Allowance
from threadhold.runner import errors
from threadhold.runner.machine import RunStatus

WAIT = {"Prefer": "wait=30"}
HELLO: dict[str, Any] = {"json": {"content": "hi"}}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=5", 5),
        ("WAIT = 5", 5),
        ('wait="7"', 7),
        ("respond-async, wait=10", 10),
        ("wait=10; x=y, respond-async", 10),
        ("wait=0", 0),
        ("wait=61", 60),
        ("wait=999999999", 60),
        ("", None),
        ("wait", None),
        ("wait=", None),
        ("wait=-1", None),
        ("wait=5s", None),
        ("await=5", None),
        ("wait=9999999999", None),
    ],
)
def test_what_is_preferred(header: str, seconds: int | None) -> None:
    assert wait_of(header) == seconds


@pytest.mark.asyncio(loop_scope="module")
async def test_who_prefers_nothing_does_not_wait(api: Api) -> None:
    run = await api.client.get("/v1/runs/run-1", headers={"Prefer": "respond-async"})
    assert (run.status_code, run.json()["status"]) == (200, "running")
    assert "preference-applied" not in run.headers
    assert [name for name, _ in api.runner.calls] == ["run"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.PAUSED])
async def test_a_run_is_told_once_it_rests(api: Api, status: RunStatus) -> None:
    waiting = asyncio.create_task(api.client.get("/v1/runs/run-1", headers=WAIT))
    await until(lambda: api.runner.calls)
    api.runner.known_runs["run-1"] = run_of(status=status)
    run = await waiting
    assert (run.status_code, run.json()["status"]) == (200, status)
    assert run.headers["preference-applied"] == "wait=30"
    assert api.runner.calls == [("rested", {"run": "run-1", "wait": 30})]
    again = await api.client.get("/v1/runs/run-1", headers=WAIT | {"If-None-Match": run.headers["etag"]})
    assert (again.status_code, again.headers["preference-applied"]) == (304, "wait=30")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", ["/v1/threads/{}/messages", "/v1/messages"])
async def test_a_message_is_told_once_its_run_rests(api: Api, path: str) -> None:
    body = {"content": "hi"} | ({"agent": "support"} if path == "/v1/messages" else {})
    path = path.format(api.runner.add_thread())
    waiting = asyncio.create_task(api.client.post(path, json=body, headers=WAIT))
    await until(lambda: "rested" in [name for name, _ in api.runner.calls])
    api.runner.known_runs["run-1"] = run_of(status=RunStatus.PAUSED)
    told = await waiting
    assert (told.status_code, told.json()["run"]) == (200, "run-1")
    assert (told.headers["location"], told.headers["preference-applied"]) == ("/v1/runs/run-1", "wait=30")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_message_that_waits_for_another_run_is_not_waited_for(api: Api) -> None:
    path = f"/v1/threads/{api.runner.add_thread()}/messages"
    told = await api.client.post(path, json={"content": "hi", "on_busy": "queue"}, headers=WAIT)
    assert (told.status_code, told.json()["run"]) == (202, None)
    assert "preference-applied" not in told.headers


@pytest.mark.asyncio(loop_scope="module")
async def test_an_accepted_message_is_never_refused_for_the_waiting(api: Api) -> None:
    path = f"/v1/threads/{api.runner.add_thread()}/messages"
    api.runner.raising["rested"] = errors.Unavailable("the database does not answer")
    told = await api.client.post(path, headers=WAIT, **HELLO)
    assert (told.status_code, told.json()["run"]) == (202, "run-1")
    assert "preference-applied" not in told.headers


async def test_who_waits_is_counted_among_those_who_watch() -> None:
    async with serving(allowance=Allowance(watches=1)) as api:
        waiting = asyncio.create_task(api.client.get("/v1/runs/run-1", headers=WAIT))
        await until(lambda: api.runner.calls)
        at_once = await api.client.get("/v1/runs/run-1", headers=WAIT)
        assert at_once.status_code == 200
        assert "preference-applied" not in at_once.headers
        api.runner.known_runs["run-1"] = run_of(status=RunStatus.COMPLETED)
        assert (await waiting).headers["preference-applied"] == "wait=30"


async def test_who_waits_does_not_hold_up_the_end_of_the_process() -> None:
    async with serving() as api:
        path = f"/v1/threads/{api.runner.add_thread()}/messages"
        waiting = asyncio.create_task(api.client.post(path, headers=WAIT, **HELLO))
        await until(lambda: "rested" in [name for name, _ in api.runner.calls])
        api.server.should_exit = True
        told = await waiting
        assert (told.status_code, told.json()["run"]) == (202, "run-1")
        await asyncio.wait_for(api.serving, 5)
