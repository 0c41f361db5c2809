"""The model of the tests refuses what providers refuse, so that what it accepts means something."""

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)

from tests.support.histories import asks, call, result, returns, says
from tests.support.scripted import stream
from tests.support.strict import refusals, strict_model

CALLED = [asks("go"), says("Going.", call("a"), call("b"))]
BOTH = [result("a"), result("b")]


@pytest.mark.parametrize(
    "messages",
    [
        [asks("hi")],
        [asks("hi"), asks("there")],
        [asks("hi"), says("hello"), asks("so?")],
        [*CALLED, returns(*BOTH)],
        [*CALLED, returns(*reversed(BOTH))],
        [*CALLED, returns(*BOTH), asks("and?")],
        [*CALLED, ModelRequest(parts=[*BOTH, UserPromptPart("and?")])],
        [*CALLED, returns(BOTH[0]), returns(BOTH[1]), says("Done."), asks("and?")],
        [asks("hi"), says(ThinkingPart("hm", signature="s"), "hello"), asks("so?")],
    ],
)
def test_what_providers_accept(messages: list[ModelMessage]) -> None:
    assert refusals(messages) == []


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "roles: the end: nobody asks"),
        ([], "turns: the end: it is not the user's turn"),
        ([says("hello"), asks("hi")], "turns: 0: a turn of the assistant"),
        ([asks("hi"), says("hello")], "roles: the end: nobody asks"),
        ([asks("hi"), says("hello"), says("you"), asks("so?")], "turns: 2: a turn of the assistant"),
        ([asks("hi"), says("", "  "), asks("so?")], "turns: 1: a blank text"),
        ([asks("hi"), says(""), asks("so?")], "roles: 1: the assistant message is empty"),
        ([asks("hi"), says(), asks("so?")], "turns: 1: an empty turn"),
        ([asks("hi"), says(ThinkingPart("hm", signature="s")), asks("so?")], "turns: 1: a turn that ends in"),
        ([asks("")], "roles: 0: the user message is empty"),
        (CALLED, "roles: the end: calls ['a', 'b'] have no result"),
        ([*CALLED, asks("and?")], "turns: 2: results of [] where ['a', 'b']"),
        ([*CALLED, returns(BOTH[0]), asks("and?")], "roles: 3: calls ['b'] have no result before this user"),
        ([*CALLED, returns(BOTH[0]), asks("and?"), returns(BOTH[1])], "turns: 2: results that do not stand"),
        ([*CALLED, asks("and?"), returns(*BOTH)], "roles: 2: calls ['a', 'b'] have no result before"),
        ([*CALLED, ModelRequest(parts=[UserPromptPart("x"), *BOTH])], "turns: 2: results that do not stand"),
        ([*CALLED, returns(*BOTH, BOTH[0])], "roles: 4: a result of a"),
        ([*CALLED, returns(*BOTH, result("c"))], "turns: 2: results of ['a', 'b', 'c']"),
        ([asks("hi"), returns(result("a"))], "turns: 0: results of ['a'] where []"),
        ([*CALLED, returns(*BOTH), *CALLED[1:], returns(*BOTH)], "turns: ids occur twice: ['a', 'b']"),
        ([asks("hi"), says(call("a"), call("a")), returns(BOTH[0], BOTH[0])], "roles: 1: two calls with one"),
        ([asks("hi"), says(call("a", tool="")), returns(BOTH[0])], "roles: 1: not a call"),
    ],
)
def test_what_providers_refuse(messages: list[ModelMessage], complaint: str) -> None:
    assert any(refusal.startswith(complaint) for refusal in refusals(messages)), refusals(messages)


async def test_it_shows_what_it_was_shown_and_answers_streaming_or_not() -> None:
    shown: list[list[ModelMessage]] = []
    agent = Agent(strict_model(stream, show=shown.append))
    assert (await agent.run("say hello | say you")).output == "helloyou"
    async with agent.run_stream("say hello | say you") as streamed:
        assert await streamed.get_output() == "helloyou"
    assert [messages[0].parts[0] for messages in shown] == [
        UserPromptPart("say hello | say you", timestamp=shown[n][0].parts[0].timestamp)  # type: ignore[union-attr]
        for n in range(2)
    ]


async def test_it_calls_tools_streaming_or_not() -> None:
    model = strict_model(stream, show=lambda messages: None)
    agent = Agent(model)

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    script = 'say I add. | call add {"a": 1, "b": 1} ;; say two'
    ran = await agent.run(script)
    assert ran.output == "two"
    [response, _] = [m for m in ran.all_messages() if isinstance(m, ModelResponse)]
    assert [type(part) for part in response.parts] == [TextPart, ToolCallPart]
    async with agent.run_stream(script) as streamed:
        assert await streamed.get_output() == "I add."


async def test_it_refuses_with_an_error_as_a_provider_does() -> None:
    agent = Agent(strict_model(stream, show=lambda messages: None))
    history: list[ModelMessage] = [asks("hi"), says(" "), asks("so?"), says("hello")]
    with pytest.raises(ModelHTTPError) as refused:
        await agent.run("and?", message_history=history)
    assert refused.value.status_code == 400
    assert refused.value.body == {"complaints": ["turns: 1: a blank text"]}
