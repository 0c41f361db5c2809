"""A paused run is a task that asks: by forms, bound to what they show, for whoever may decide."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import mcp.types as types
import pytest
from mcp import Client

from tests.mcp.replicas import Replicas, call, code, host, text
from tests.mcp.task_host import APPROVED, Created, Tasks, ask, created, ended, get, refusal, status, update
from tests.mcp.test_asking import PAY, Person
from tests.mcp.test_stdio import process

pytestmark = pytest.mark.asyncio(loop_scope="package")

AGENT = "scripted"
Gate = Callable[[str], Path]


def asking(url: str, **options: Any) -> Any:
    """Connect a host that takes tasks and has forms."""
    return host(url, "auto", extensions=[Tasks()], elicitation_callback=Person("cancel"), **options)


async def paused(client: Client, script: str = PAY, **given: Any) -> tuple[Created, dict[str, Any]]:
    """Send a script that pauses, and return its task and the forms."""
    task = await created(client, "send", content=script, agent=AGENT, **given)
    asks = await status(client.session, task.task_id, "input_required")
    return task, asks["inputRequests"]


async def test_an_approval_by_the_other_replica(pair: Replicas) -> None:
    async with asking(pair.a) as a, asking(pair.b) as b:
        task, forms = await paused(a)
        assert task.status == "input_required"
        ((key, form),) = forms.items()
        assert form["method"] == "elicitation/create"
        assert form["params"]["message"] == 'The agent asks to call pay with:\n{\n "amount": 50\n}'
        assert list(form["params"]["requestedSchema"]["properties"]) == ["decision", "reason"]
        for _ in range(2):
            # Who is not sure whether it arrived sends it again.
            await update(b, task.task_id, {key: APPROVED})
        done = await ended(b.session, task.task_id)
        told = done["result"]["structuredContent"]
        assert (done["status"], told["output"], told["status"]) == ("completed", "done", "completed")
        run = await call(a, "get_run", run=task.task_id)
        assert list(run["tools"].values()) == ["finished"]
        # What comes after the end changes nothing.
        await update(a, task.task_id, {key: {"action": "decline"}})
        assert await get(a, task.task_id) == done


@pytest.mark.parametrize(
    ("filled", "reason"),
    [
        ({"action": "accept", "content": {"decision": "reject", "reason": "too much"}}, "too much"),
        ({"action": "decline"}, None),
    ],
    ids=["reject", "decline"],
)
async def test_a_rejection_is_one_too(pair: Replicas, filled: dict[str, Any], reason: str | None) -> None:
    async with asking(pair.a) as a:
        task, (key,) = await paused(a)
        await update(a, task.task_id, {key: filled})
        done = await ended(a.session, task.task_id)
        decision = done["result"]["structuredContent"]["decision"]
        assert (decision["kind"], decision.get("reason")) == ("reject", reason)


async def test_some_may_be_answered_first(pair: Replicas) -> None:
    script = 'call pay {"amount": 50} | call ask {"question": "Which size?"} ;; say done'
    async with asking(pair.a) as a:
        task, forms = await paused(a, script)
        question, approval = sorted(forms, key=lambda key: "pay" in forms[key]["params"]["message"])
        # A form that is put away stays open.
        await update(a, task.task_id, {approval: {"action": "cancel"}})
        await update(a, task.task_id, {question: {"action": "accept", "content": {"answer": "XL"}}})
        left = await get(a, task.task_id)
        assert (left["status"], list(left["inputRequests"])) == ("input_required", [approval])
        await update(a, task.task_id, {approval: APPROVED})
        assert (await ended(a.session, task.task_id))["status"] == "completed"


async def test_a_form_that_is_not_filled_in_decides_nothing(pair: Replicas) -> None:
    async with asking(pair.a) as a:
        task, (key,) = await paused(a)
        given = {"input_responses": {key: {"action": "accept", "content": {"approve": True}}}}
        refused = await refusal(ask(a.session, "tasks/update", task.task_id, **given))
        assert refused == (types.INVALID_PARAMS, "invalid_input")
        assert list((await get(a, task.task_id))["inputRequests"]) == [key]


async def test_an_answer_is_bound_to_what_was_shown(pair: Replicas) -> None:
    async with asking(pair.a) as a:
        task, (key,) = await paused(a)
        request = key.partition(".")[0]
        forged = {f"{request}.{'00' * 32}": "args_changed", request: "not_found", f"{request}.": "not_found"}
        for each, refused in forged.items():
            given = {"input_responses": {each: APPROVED}}
            assert (await refusal(ask(a.session, "tasks/update", task.task_id, **given)))[1] == refused
        assert (await pair.run(task.task_id)).status == "paused"


async def test_a_form_of_another_task_is_none_of_this_one(pair: Replicas) -> None:
    async with asking(pair.a) as a, asking(pair.b, who="dora") as dora:
        (own, (key,)), (other, (foreign,)) = await paused(a), await paused(dora)
        mine, _ = await paused(a)
        unknown = f"{uuid4()}.{'00' * 32}"
        missing = (types.INVALID_PARAMS, "not_found")
        for client, id, wrong in (
            (a, own.task_id, foreign), (a, own.task_id, unknown), (a, own.task_id, "moon"),
            (a, mine.task_id, key), (a, other.task_id, key), (dora, own.task_id, key),
        ):  # fmt: skip
            # Nothing is decided then, by what is right beside it neither.
            responses = {key: APPROVED, wrong: APPROVED}
            given = {"input_responses": responses}
            assert await refusal(ask(client.session, "tasks/update", id, **given)) == missing
        for run in (own, other, mine):
            assert (await get(dora if run is other else a, run.task_id))["status"] == "input_required"


async def test_what_somebody_else_has_to_decide_is_no_form(pair: Replicas) -> None:
    async with asking(pair.a) as a, host(pair.b, "auto", who="bob") as bob:
        task, forms = await paused(a, "call guarded {} ;; say done")
        assert forms == {}
        told = (await get(a, task.task_id))["statusMessage"]
        assert "not by whoever caused it" in told
        (request,) = (await call(a, "get_run", run=task.task_id))["requests"]
        key = f"{request['request']}.{request['args_hash']}"
        given = {"input_responses": {key: APPROVED}}
        refused = await refusal(ask(a.session, "tasks/update", task.task_id, **given))
        assert refused == (types.INVALID_PARAMS, "own_request")
        await call(bob, "answer", request=request["request"], kind="approve")
        done = await ended(a.session, task.task_id)
        assert done["result"]["structuredContent"]["by"] == "bob"


async def test_an_approver_decides_on_the_task_of_another(pair: Replicas) -> None:
    async with asking(pair.a) as a, asking(pair.b, who="bob") as bob:
        task, (key,) = await paused(a)
        assert list((await get(bob, task.task_id))["inputRequests"]) == [key]
        for _ in range(2):
            # Once it is decided, the thread is closed to them; what they decided is theirs to repeat.
            await update(bob, task.task_id, {key: APPROVED})
        assert (await ended(a.session, task.task_id))["result"]["structuredContent"]["by"] == "bob"


async def test_who_has_no_forms_is_told_of_the_pause_at_once(pair: Replicas, gate: Gate) -> None:
    finish = gate("finish")
    async with host(pair.a, "auto", extensions=[Tasks()]) as a:
        result = await a.session.call_tool("send", {"content": PAY, "agent": AGENT}, allow_claimed=True)
        assert isinstance(result, types.CallToolResult)
        assert (result.structured_content["status"], "call `answer`" in text(result)) == ("paused", True)
        task = await created(a, "send", content=f"hold {finish} | {PAY}", agent=AGENT, wait_s=0)
        finish.touch()
        asks = await status(a.session, task.task_id, "input_required")
        assert (asks["inputRequests"], "call `answer`" in asks["statusMessage"]) == ({}, True)
        assert await code(a, "stop", run=str(uuid4())) == "not_found"


async def test_forms_over_stdio(pair: Replicas) -> None:
    options: dict[str, Any] = {"extensions": [Tasks()], "elicitation_callback": Person("cancel")}
    async with process(pair.a, "auto", **options) as c:
        task, (key,) = await paused(c)
        given = {"input_responses": {f"{uuid4()}.00": APPROVED}}
        assert (await refusal(ask(c.session, "tasks/update", task.task_id, **given)))[1] == "not_found"
        for _ in range(2):
            await update(c, task.task_id, {key: APPROVED})
        assert (await ended(c.session, task.task_id))["result"]["structuredContent"]["output"] == "done"
