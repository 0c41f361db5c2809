"""Calls that do not end in their time become tasks for hosts that take them; any replica tells of any task."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import mcp.types as types
import pytest
from mcp import Client

from tests.mcp.replicas import ERAS, Replicas, call, host, principal, replica, text
from tests.mcp.task_host import Created, Tasks, ask, cancel, created, ended, get, refusal, status
from tests.mcp.test_stdio import process
from tests.mcp.test_waiting import RUN, ScriptedDesk, Session, call_on, values
from tests.support.waiting import until
from threadhold.adapters.mcp import schemas, tools
from threadhold.adapters.mcp.declared import TASKS
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.task_methods import TaskNews
from threadhold.adapters.mcp.tasks import POLL_MS, STANDING_KEY
from threadhold.runner.errors import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="package")

AGENT = "scripted"
Gate = Callable[[str], Path]


def taking(url: str, **options: Any) -> Any:
    """Connect a host that takes tasks."""
    return host(url, "auto", extensions=[Tasks()], **options)


async def test_a_call_that_has_waited_becomes_a_task(pair: Replicas, gate: Gate) -> None:
    finish = gate("finish")
    given = {"content": f"say on | hold {finish} | say  and on", "agent": AGENT, "key": str(uuid4())}
    async with taking(pair.a) as a, taking(pair.b) as b, host(pair.b, "auto") as plain:
        task = await created(a, "send", **given, wait_s=0)
        standing = (task.meta or {})[STANDING_KEY]
        assert (task.status, task.poll_interval_ms, standing["run"]) == ("working", POLL_MS, task.task_id)
        working = await get(b, task.task_id)
        assert (working["status"], working["createdAt"]) == ("working", task.created_at)
        assert working["statusMessage"] in ("pending", "running")
        assert working["lastUpdatedAt"] >= working["createdAt"]
        finish.touch()
        done = await ended(b.session, task.task_id)
        assert (done["status"], "statusMessage" in done) == ("completed", False)
        assert done["lastUpdatedAt"] > working["lastUpdatedAt"]
        # The same call of a host without tasks returns the same.
        waited = await plain.call_tool("send", given)
        result = types.CallToolResult.model_validate(done["result"])
        assert text(result) == text(waited) == "on and on"
        assert result.structured_content | {"duplicate": True} == waited.structured_content
        assert result.structured_content["message"] == standing["message"]


async def test_a_host_gets_the_result_of_a_task_as_that_of_its_call(pair: Replicas, gate: Gate) -> None:
    first, second = gate("first"), gate("second")
    tasks = Tasks(first, second)
    async with host(pair.a, "auto", extensions=[tasks]) as a, host(pair.b, "auto") as plain:
        # The client holds the result against the tool's schema.
        await a.list_tools()
        sent = await call(a, "send", content=f"hold {first} | say hi", agent=AGENT, wait_s=0)
        assert (sent["status"], sent["output"], sent["disposition"]) == ("completed", "hi", "started")
        script = f'call pay {{"amount": 50}} ;; hold {second} | say done'
        paused = await call(plain, "send", content=script, agent=AGENT)
        given = {"request": paused["requests"][0]["request"], "kind": "approve"}
        answered = await call(a, "answer", **given, wait_s=0)
        assert (answered["output"], answered["request"], answered["by"]) == ("done", given["request"], "ada")
        assert [each.task_id for each in tasks.created] == [sent["run"], paused["run"]]


async def test_what_ends_in_its_time_is_no_task(pair: Replicas) -> None:
    async with taking(pair.a) as a:
        sent = await a.session.call_tool("send", {"content": "say hi", "agent": AGENT}, allow_claimed=True)
        assert isinstance(sent, types.CallToolResult)
        assert sent.structured_content["status"] == "completed"


async def test_a_watch_tells_what_there_is_and_is_no_task(pair: Replicas, gate: Gate) -> None:
    async with taking(pair.a) as a:
        task = await created(a, "send", content=f"hold {gate('finish')} | say hi", agent=AGENT, wait_s=0)
        given = {"thread": (task.meta or {})[STANDING_KEY]["thread"], "run": task.task_id, "wait_s": 0}
        assert (await call(a, "watch", **given))["status"] in ("pending", "running")


async def test_a_message_that_has_no_run_yet_is_no_task(pair: Replicas, gate: Gate) -> None:
    finish = gate("finish")
    async with taking(pair.a) as a:
        first = await created(a, "send", content=f"hold {finish} | say hi", agent=AGENT, wait_s=0)
        thread = (first.meta or {})[STANDING_KEY]["thread"]
        given = {"thread": thread, "content": "say next", "on_busy": "queue"}
        queued = await call(a, "send", **given, wait_s=0)
        assert ("run" in queued, queued["status"]) == (False, "pending")
        finish.touch()
        await pair.ended(first.task_id)

        async def taken() -> str | None:
            events = (await call(a, "watch", thread=thread, after="start"))["events"]
            return str(events[-1]["run"]) if events else None

        next_run = await until(taken, what="the queued message has no run")
        assert next_run is not None
        told = (await ended(a.session, next_run))["result"]["structuredContent"]
        assert (told["message"], told["disposition"], told["output"]) == (
            queued["message"], "queued", "next",
        )  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
async def test_who_does_not_take_tasks_sees_none(pair: Replicas, era: str, gate: Gate) -> None:
    async with host(pair.a, era) as plain:
        sent = await call(plain, "send", content=f"hold {gate('finish')} | say hi", agent=AGENT, wait_s=0)
        assert sent["status"] in ("pending", "running")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            given: dict[str, Any] = {"input_responses": {}} if method == "tasks/update" else {}
            code, _ = await refusal(ask(plain.session, method, sent["run"], **given))
            assert code == (types.METHOD_NOT_FOUND if era == "legacy" else -32021)
        assert (TASKS in (plain.server_capabilities.extensions or {})) == (era != "legacy")
        assert (await pair.run(sent["run"])).stop_requested is False


async def test_cancelling_a_task_stops_its_run(pair: Replicas, gate: Gate) -> None:
    async with taking(pair.a) as a, taking(pair.b) as b:
        task = await created(a, "send", content=f"hold {gate('never')} | say hi", agent=AGENT, wait_s=0)
        assert (await cancel(b, task.task_id))["run"] == task.task_id
        stopped = await ended(a.session, task.task_id)
        assert (stopped["status"], stopped["statusMessage"]) == ("cancelled", "stopped (person)")
        assert "result" not in stopped
        again = await cancel(a, task.task_id)
        assert (again["settled"], again["status"]) == (True, "stopped")
        assert (await get(a, task.task_id)) == stopped


async def test_a_task_that_has_ended_is_not_cancelled(pair: Replicas) -> None:
    async with taking(pair.a) as a, host(pair.a, "auto") as plain:
        sent = await call(plain, "send", content="say hi", agent=AGENT)
        await cancel(a, sent["run"])
        assert (await get(a, sent["run"]))["status"] == "completed"


async def test_a_run_that_fails_is_a_task_with_that_result(pair: Replicas, gate: Gate) -> None:
    finish = gate("finish")
    script = f'hold {finish} | call fail {{"why": "sold out"}}'
    async with taking(pair.a) as a:
        task = await created(a, "send", content=script, agent=AGENT, wait_s=0)
        finish.touch()
        failed = await ended(a.session, task.task_id)
        # The protocol keeps `failed` for calls that have no result at all.
        assert failed["status"] == "completed"
        assert failed["statusMessage"] == failed["result"]["content"][0]["text"] == "failed (error): sold out"
        told = failed["result"]["structuredContent"]
        assert (told["status"], told["reason"], failed["result"]["isError"]) == ("failed", "error", False)


async def test_nobody_knows_of_tasks_that_are_not_theirs(pair: Replicas, gate: Gate) -> None:
    async with taking(pair.a) as a:
        task = await created(a, "send", content=f"hold {gate('finish')} | say hi", agent=AGENT, wait_s=0)
    missing = (types.INVALID_PARAMS, "not_found")
    for who in ("eve", "mallory"):
        async with taking(pair.b, who=who) as other:
            for id in (task.task_id, str(uuid4()), "task-1"):
                assert await refusal(ask(other.session, "tasks/get", id)) == missing
                assert await refusal(ask(other.session, "tasks/cancel", id)) == missing
                assert await refusal(ask(other.session, "tasks/update", id, input_responses={})) == missing
    assert (await pair.run(task.task_id)).stop_requested is False


async def test_a_run_of_another_door_is_a_task(pair: Replicas) -> None:
    receipt = await pair.runner.send(None, "say hi", by=principal("ada"), agent=AGENT)
    assert receipt.run is not None
    async with taking(pair.a) as a:
        done = await ended(a.session, receipt.run)
        told = done["result"]["structuredContent"]
        assert (told["output"], told["message"]) == ("hi", receipt.message)


async def test_a_host_that_goes_away_stops_nothing(pair: Replicas, gate: Gate) -> None:
    finish, heard = gate("finish"), asyncio.Event()
    given = {"content": f"say on | hold {finish} | say  and on", "agent": AGENT, "key": str(uuid4())}

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with taking(pair.a) as a:
        calling = asyncio.create_task(a.call_tool("send", given, progress_callback=on_progress))
        await heard.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    async with taking(pair.b) as b:
        again = await created(b, "send", **given, wait_s=0)
        assert (again.meta or {})[STANDING_KEY]["duplicate"] is True
        finish.touch()
        assert (await ended(b.session, again.task_id))["result"]["structuredContent"]["output"] == "on and on"


async def test_a_replica_that_leaves_gives_a_task_to_look_at_elsewhere(pair: Replicas, gate: Gate) -> None:
    finish, heard = gate("finish"), asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        # What comes before is of a message that waits for its run.
        if message == "on":
            heard.set()

    async with replica(pair.runner) as leaving, taking(leaving) as c:
        # The client wants to know what a result may look like, and could not ask any more then.
        await c.list_tools()
        given = {"content": f"say on | hold {finish} | say  and on", "agent": AGENT}
        waits = c.session.call_tool("send", given, allow_claimed=True, progress_callback=on_progress)
        waiting = asyncio.create_task(waits)
        await heard.wait()
        pair.drain(leaving)
        task = await waiting
        assert isinstance(task, Created)
    finish.touch()
    async with taking(pair.b) as b:
        assert (await ended(b.session, task.task_id))["result"]["structuredContent"]["output"] == "on and on"


async def test_a_task_that_cannot_be_read_is_a_handle() -> None:
    desk = ScriptedDesk(error=Unavailable("the database is away"))
    desk.may_send.set()
    declares = SimpleNamespace(elicitation=None, extensions={TASKS: {}})
    sent = values(
        await tools.send(call_on(desk, Session(client_capabilities=declares)), schemas.Send(content="hi"))
    )
    assert (sent["message"], sent["note"]) == ("m", "unavailable: the database is away")


async def listen(client: Client, **wanted: Any) -> None:
    """Listen until the server or the caller ends it."""
    filter = types.SubscriptionFilter(**wanted)
    params = types.SubscriptionsListenRequestParams(notifications=filter)
    await client.session.send_request(
        types.SubscriptionsListenRequest(params=params), types.SubscriptionsListenResult
    )


async def test_tasks_are_told_of_on_the_other_replica(pair: Replicas, gate: Gate) -> None:
    finish, tasks = gate("finish"), Tasks()
    async with taking(pair.a) as a, host(pair.b, "auto", extensions=[tasks]) as b:
        task = await created(a, "send", content=f"hold {finish} | say hi", agent=AGENT, wait_s=0)
        listening = asyncio.create_task(listen(b, taskIds=[task.task_id]))

        async def told() -> bool:
            return bool(tasks.told)

        await until(told, what="nothing was told of the task")
        finish.touch()

        async def all_told() -> bool:
            return bool(tasks.told[-1]["status"] == "completed")

        await until(all_told, what="the end of the task was not told")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        last = {name: value for name, value in tasks.told[-1].items() if name != "_meta"}
        assert last == await get(a, task.task_id)
        assert [each["status"] for each in tasks.told].count("completed") == 1
        assert all(each["status"] == "working" for each in tasks.told[:-1])


async def test_a_task_that_has_ended_is_told_of_at_once(pair: Replicas) -> None:
    tasks = Tasks()
    async with host(pair.b, "auto", extensions=[tasks]) as b, host(pair.a, "auto") as plain:
        sent = await call(plain, "send", content="say hi", agent=AGENT)
        listening = asyncio.create_task(listen(b, taskIds=[sent["run"]]))

        async def told() -> bool:
            return bool(tasks.told)

        await until(told, what="nothing was told of the task")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert [(each["taskId"], each["status"]) for each in tasks.told] == [(sent["run"], "completed")]


async def test_a_state_is_told_once() -> None:
    told: list[Any] = []

    async def send_notification(notification: Any, related_request_id: int) -> None:
        told.append(notification.model_dump(exclude_none=True))

    session = SimpleNamespace(send_notification=send_notification, client_capabilities=None)
    news = TaskNews(
        cast(Any, SimpleNamespace(session=session, request_id=1)), cast(Desk, ScriptedDesk()), {"of": 1}
    )
    for _ in range(2):
        await news.tell(RUN)
    ((method, params),) = [(each["method"], each["params"]) for each in told]
    assert (method, params["status"], params["_meta"]) == ("notifications/tasks", "working", {"of": 1})
    assert params["ttlMs"] is None


async def test_who_may_not_know_of_a_task_is_not_told(pair: Replicas) -> None:
    async with taking(pair.a) as a, host(pair.a, "auto") as plain, taking(pair.b, who="eve") as eve:
        sent = await call(plain, "send", content="say hi", agent=AGENT)
        wanted = {"taskIds": [sent["run"]]}
        assert (await refusal(listen(plain, **wanted)))[0] == -32021
        assert await refusal(listen(eve, **wanted)) == (types.INVALID_PARAMS, "not_found")
        assert await refusal(listen(a, taskIds="all")) == (types.INVALID_PARAMS, "invalid_input")


async def test_tasks_over_stdio(pair: Replicas, gate: Gate) -> None:
    finish, tasks = gate("finish"), Tasks()
    async with process(pair.a, "auto", extensions=[tasks]) as c:
        task = await created(c, "send", content=f"hold {finish} | say hi", agent=AGENT, wait_s=0)
        listening = asyncio.create_task(listen(c, taskIds=[task.task_id]))
        assert (await status(c.session, task.task_id, "working"))["createdAt"] == task.created_at
        finish.touch()

        async def told() -> bool:
            return bool(tasks.told) and tasks.told[-1]["status"] == "completed"

        await until(told, what="the end of the task was not told")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert (await get(c, task.task_id))["result"]["structuredContent"]["output"] == "hi"
        other = await created(c, "send", content=f"hold {gate('never')} | say hi", agent=AGENT, wait_s=0)
        assert isinstance(other, Created)
        await cancel(c, other.task_id)
        assert (await ended(c.session, other.task_id))["status"] == "cancelled"
        assert (await refusal(ask(c.session, "tasks/get", str(uuid4()))))[1] == "not_found"
