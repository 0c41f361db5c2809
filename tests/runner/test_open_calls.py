"""Calls that people decided about are carried out by the agent, once, and by no other way than their decision."""

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart, UserPromptPart

from tests.support.histories import (
    Json,
    asks,
    call,
    model_called,
    request_opened,
    result,
    returns,
    says,
    texts,
    tool_called,
    tool_returned,
)
from tests.support.strict import strict_model
from threadhold.runner.history import NOT_EXECUTED, OUTCOME_UNKNOWN, continuable, dumped, loaded
from threadhold.runner.ledger import Answer, ledger_of

PAY, ADD, ASK = call("pay", "pay", amount=5), call("add", "add", a=1, b=2), call("ask", "ask", what="colour")
PAY_ALLOWED = Answer(call="pay", request="approval", decision="approve")
PAY_LESS = Answer(call="pay", request="approval", decision="edit", args={"amount": 3})
PAY_EXPIRED = Answer(call="pay", request="approval", decision="reject", reason="expired")
BLUE = Answer(call="ask", request="question", decision="reply", value="blue")
ASK_EXPIRED = Answer(call="ask", request="question", decision="reject", reason="expired")
PAUSED = [model_called("pay", "add", "ask"), tool_called("pay"), tool_called("add"), tool_called("ask")]
ADDED = tool_returned("add", "ok", result=3)
OPENED = [request_opened("pay"), request_opened("ask")]


class Bench:
    """An agent whose tools remember what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.shown: list[list[ModelMessage]] = []
        self.agent = Agent(strict_model(_says_done, show=self.shown.append), instructions="Be careful.")
        self.agent.tool(self.pay)
        self.agent.tool_plain(self.add)
        self.agent.tool_plain(self.ask)

    async def pay(self, ctx: RunContext[object], amount: int) -> str:
        """Pay, if somebody allows it."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        self.done.append(f"paid {amount}")
        return self.done[-1]

    async def add(self, a: int, b: int) -> int:
        """Add."""
        self.done.append("added")
        return a + b

    async def ask(self, what: str) -> str:
        """Ask people."""
        raise CallDeferred(kind="question")

    async def resume(self, history: list[ModelMessage], facts: list[Json], *answers: Answer) -> list[Any]:
        """Run on from a history, and return the results of calls that the model was shown."""
        stored = loaded(dumped(history))
        on = continuable(stored, ledger_of(facts, answers), resuming=True)
        ran = await self.agent.run(None, message_history=on.messages, deferred_tool_results=on.results)
        assert ran.output == "done"
        # What is stored afterwards is accepted as well, and shows the model the same.
        after = continuable([*stored, *ran.new_messages()], ledger_of(facts, answers)).messages
        assert texts(after, ToolReturnPart) == texts(self.shown[-1], ToolReturnPart)
        return texts(self.shown[-1], ToolReturnPart)


async def _says_done(messages: list[ModelMessage], info: object) -> Any:
    yield "done"


@pytest.fixture
def bench() -> Bench:
    """An agent with tools that ask."""
    return Bench()


async def test_an_approved_call_is_executed(bench: Bench) -> None:
    facts = [model_called("pay"), tool_called("pay"), request_opened("pay")]
    assert await bench.resume([asks("pay"), says(PAY)], facts, PAY_ALLOWED) == ["paid 5"]
    assert bench.done == ["paid 5"]


async def test_an_edited_call_is_executed_with_the_new_arguments(bench: Bench) -> None:
    assert await bench.resume([asks("pay"), says(PAY)], [model_called("pay")], PAY_LESS) == ["paid 3"]


async def test_siblings_that_ended_are_not_executed_again_and_keep_their_results(bench: Bench) -> None:
    history: list[ModelMessage] = [asks("go"), says(PAY, ADD, ASK)]
    seen = await bench.resume(history, [*PAUSED, ADDED, *OPENED], PAY_ALLOWED, BLUE)
    assert seen == ["paid 5", 3, "blue"]
    assert bench.done == ["paid 5"]


async def test_siblings_whose_results_are_stored_are_not_closed_twice(bench: Bench) -> None:
    history: list[ModelMessage] = [asks("go"), says(PAY, ADD, ASK), returns(result("add", 3))]
    assert await bench.resume(history, [*PAUSED, ADDED, *OPENED], PAY_ALLOWED, BLUE) == ["paid 5", 3, "blue"]


async def test_what_nobody_answered_in_time_is_denied_beside_what_somebody_allowed(bench: Bench) -> None:
    history: list[ModelMessage] = [asks("go"), says(PAY, ADD, ASK)]
    seen = await bench.resume(history, [*PAUSED, ADDED, *OPENED], PAY_ALLOWED, ASK_EXPIRED)
    assert seen == ["paid 5", 3, "expired"]
    seen = await bench.resume(history, [*PAUSED, ADDED, *OPENED], PAY_EXPIRED, BLUE)
    assert seen == ["expired", 3, "blue"]
    assert bench.done == ["paid 5"]


async def test_an_approved_call_whose_execution_was_cut_off_is_not_executed_again(bench: Bench) -> None:
    history: list[ModelMessage] = [asks("go"), says(PAY, ADD, ASK)]
    crashed = [*PAUSED, ADDED, *OPENED, tool_called("pay")]
    assert await bench.resume(history, crashed, PAY_ALLOWED, BLUE) == [OUTCOME_UNKNOWN, 3, "blue"]
    assert await bench.resume([asks("pay"), says(PAY)], crashed, PAY_ALLOWED) == [OUTCOME_UNKNOWN]
    ended = [*crashed, tool_returned("pay", "ok", result="paid 5")]
    assert await bench.resume(history, ended, PAY_ALLOWED, BLUE) == ["paid 5", 3, "blue"]
    assert bench.done == []


async def test_a_history_that_ends_in_a_request_is_answered(bench: Bench) -> None:
    assert await bench.resume([asks("hello")], []) == []
    history: list[ModelMessage] = [asks("go"), says(ADD), returns(result("add", 3)), asks("faster")]
    assert await bench.resume(history, []) == [3]
    assert texts(bench.shown[-1], UserPromptPart) == ["go", "faster"]


async def test_calls_that_were_cut_off_are_closed_and_the_model_is_asked_again(bench: Bench) -> None:
    history: list[ModelMessage] = [asks("go"), says(ADD, PAY)]
    facts = [model_called("add", "pay"), tool_called("add"), ADDED]
    assert await bench.resume(history, facts) == [3, NOT_EXECUTED]
    assert await bench.resume(history, facts[:2]) == [OUTCOME_UNKNOWN, NOT_EXECUTED]
    assert bench.done == []


async def test_an_answer_that_was_cut_off_is_given_anew(bench: Bench) -> None:
    history: list[ModelMessage] = [
        asks("go"),
        says(ADD),
        returns(result("add", 3)),
        says("Thr", cut_off=True),
    ]
    assert await bench.resume(history, []) == [3]
    assert not [m for m in bench.shown[-1][2:] if isinstance(m, ModelResponse)]


async def test_a_call_that_was_cut_off_is_not_executed_though_its_arguments_parse(bench: Bench) -> None:
    history: list[ModelMessage] = [asks("go"), says("I add", ADD, cut_off=True)]
    assert await bench.resume(history, [model_called("add", state="interrupted")]) == []
    assert bench.done == []
