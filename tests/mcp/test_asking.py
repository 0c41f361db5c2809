"""People are asked by forms where their hosts have them; the answer may come to another replica."""

import json
from typing import Any, Literal
from uuid import uuid4

import mcp.types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.mcp.replicas import Replicas, call, host
from threadhold.adapters.mcp.asking import FORMS_MAX

pytestmark = pytest.mark.asyncio(loop_scope="package")

AGENT = "scripted"
PAY = 'call pay {"amount": 50} ;; say done'
Action = Literal["accept", "decline", "cancel"]


class Person:
    """Fills in forms, always the same way, and keeps what was asked."""

    def __init__(self, action: Action, **content: Any) -> None:
        self.asked: list[types.ElicitRequestFormParams] = []
        self._answer = types.ElicitResult(action=action, content=content or None)

    async def __call__(self, ctx: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a form."""
        assert isinstance(params, types.ElicitRequestFormParams)
        self.asked.append(params)
        return self._answer


async def test_an_approval_is_asked_for_and_the_call_goes_on(pair: Replicas) -> None:
    person = Person("accept", decision="approve")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content=PAY, agent=AGENT)
        assert (sent["status"], sent["output"], sent["disposition"]) == ("completed", "done", "started")
        (form,) = person.asked
        assert form.message == 'The agent asks to call pay with:\n{\n "amount": 50\n}'
        run = await call(a, "get_run", run=sent["run"])
        assert list(run["tools"].values()) == ["finished"]


@pytest.mark.parametrize(
    ("person", "reason"),
    [(Person("accept", decision="reject", reason="too much"), "too much"), (Person("decline"), None)],
    ids=["reject", "decline"],
)
async def test_a_rejection_is_one_too(pair: Replicas, person: Person, reason: str | None) -> None:
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content=PAY, agent=AGENT)
        assert (sent["status"], sent["output"]) == ("completed", "done")
        watched = await call(a, "watch", thread=sent["thread"])
        (answered,) = [each["data"] for each in watched["events"] if each["fact"] == "request_answered"]
        assert (answered["decision"], answered.get("reason")) == ("reject", reason)


async def test_a_form_that_is_put_away_leaves_the_run_paused(pair: Replicas) -> None:
    person = Person("cancel")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content=PAY, agent=AGENT)
        assert (sent["status"], len(sent["requests"]), len(person.asked)) == ("paused", 1, 1)
        assert (await pair.run(sent["run"])).status == "paused"


async def test_several_requests_are_asked_about_together(pair: Replicas) -> None:
    person = Person("accept", decision="approve", answer="XL")
    script = 'call pay {"amount": 50} | call ask {"question": "Which size?"} ;; say done'
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content=script, agent=AGENT)
        assert (sent["status"], sent["output"]) == ("completed", "done")
        schemas = [list(each.requested_schema["properties"]) for each in person.asked]
        assert sorted(schemas) == [["answer"], ["decision", "reason"]]


async def test_an_answer_asks_about_what_comes_next(pair: Replicas) -> None:
    script = 'call pay {"amount": 1} ;; call pay {"amount": 2} ;; say done'
    async with host(pair.b, "auto") as plain:
        paused = await call(plain, "send", content=script, agent=AGENT)
    person = Person("accept", decision="approve")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        given = {"request": paused["requests"][0]["request"], "kind": "approve"}
        answered = await call(a, "answer", **given)
        assert (answered["status"], answered["output"], answered["request"]) == (
            "completed", "done", given["request"],
        )  # fmt: skip
        assert ['"amount": 2' in each.message for each in person.asked] == [True]


async def question(client: Client, given: dict[str, Any], tool: str = "send") -> types.InputRequiredResult:
    """Call a tool by hand and return what it asks."""
    asked = await client.session.call_tool(tool, given, allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    return asked


def approving(asked: types.InputRequiredResult) -> types.InputResponses:
    """Return approvals of all that is asked."""
    yes = types.ElicitResult(action="accept", content={"decision": "approve"})
    return {id: yes for id in asked.input_requests or {}}


async def test_the_answer_may_come_to_another_replica(pair: Replicas) -> None:
    given = {"content": PAY, "agent": AGENT}
    person = Person("cancel")
    async with (
        host(pair.a, "auto", elicitation_callback=person) as a,
        host(pair.b, "auto", elicitation_callback=person) as b,
    ):
        asked = await question(a, given)
        for _ in range(2):
            # A host that is not sure whether its answer arrived repeats it.
            answered = await b.session.call_tool(
                "send", given, input_responses=approving(asked), request_state=asked.request_state
            )
            assert isinstance(answered, types.CallToolResult)
            values = answered.structured_content
            assert (values["status"], values["output"]) == ("completed", "done")


async def test_what_somebody_else_decided_meanwhile_is_told(pair: Replicas) -> None:
    given, person = {"content": PAY, "agent": AGENT}, Person("cancel")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        asked = await question(a, given)
        (request,) = asked.input_requests or {}
        await call(a, "answer", request=request, kind="reject", reason="no")
        late = await a.session.call_tool(
            "send", given, input_responses=approving(asked), request_state=asked.request_state
        )
        assert late.structured_content["note"].startswith("already_answered: ")
        assert late.structured_content["status"] == "completed"


async def test_a_decision_is_bound_to_the_arguments_that_were_shown(pair: Replicas) -> None:
    given, person = {"content": PAY, "agent": AGENT}, Person("cancel")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        asked = await question(a, given)
        state = json.loads(asked.request_state or "")
        state["asked"][0]["args_hash"] = "00" * 32
        state["extra"]["status"] = "completed"
        answered = await a.session.call_tool(
            "send", given, input_responses=approving(asked), request_state=json.dumps(state)
        )
        values = answered.structured_content
        assert (values["status"], values["note"].partition(":")[0]) == ("paused", "args_changed")


async def test_what_a_host_brings_back_is_believed_no_more_than_an_argument(pair: Replicas) -> None:
    given, person = {"content": PAY, "agent": AGENT}, Person("cancel")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        asked = await question(a, given)
        state = json.loads(asked.request_state or "")
        long = json.dumps({**state, "asked": state["asked"] * (FORMS_MAX + 1)})
        for forged in ("{", "[]", json.dumps({"thread": str(uuid4())}), long):
            with pytest.raises(MCPError, match="requestState"):
                await a.session.call_tool("send", given, request_state=forged)
    async with host(pair.b, "auto", who="eve", elicitation_callback=person) as eve:
        stolen = await eve.session.call_tool(
            "send", given, input_responses=approving(asked), request_state=asked.request_state
        )
        assert stolen.is_error
        assert (stolen.meta or {})["threadhold/error"]["code"] == "not_found"
    async with host(pair.a, "auto") as a:
        assert (await call(a, "get_run", run=state["run"]))["status"] == "paused"


async def test_what_somebody_else_has_to_decide_is_not_asked(pair: Replicas) -> None:
    person = Person("accept", decision="approve")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content="call guarded {}", agent=AGENT)
        assert (sent["status"], sent["requests"][0]["other_only"], person.asked) == ("paused", True, [])
    async with host(pair.b, "auto", who="bob") as bob:
        answered = await call(bob, "answer", request=sent["requests"][0]["request"], kind="approve")
        assert answered["by"] == "bob"


async def test_nobody_is_asked_about_what_cannot_be_shown_whole(pair: Replicas) -> None:
    person = Person("accept", decision="approve")
    script = f"call pay {json.dumps({'amount': 5, 'to': 'x' * 5000})}"
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content=script, agent=AGENT)
        assert (sent["status"], person.asked) == ("paused", [])
        assert len(sent["requests"][0]["args"]["to"]) == 5000


async def test_a_watch_asks_as_well(pair: Replicas) -> None:
    person = Person("accept", decision="approve")
    async with host(pair.a, "auto", elicitation_callback=person) as a:
        sent = await call(a, "send", content=PAY, agent=AGENT, wait_s=0)
        watched = await call(a, "watch", thread=sent["thread"], run=sent["run"])
        assert (watched["status"], watched["output"]) == ("completed", "done")
        assert len(person.asked) == 1


async def test_over_http_the_handshake_era_has_no_way_to_ask(pair: Replicas) -> None:
    person = Person("accept", decision="approve")
    async with host(pair.a, "legacy", elicitation_callback=person) as a:
        sent = await call(a, "send", content=PAY, agent=AGENT)
        assert (sent["status"], person.asked) == ("paused", [])
