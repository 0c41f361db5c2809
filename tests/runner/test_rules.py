"""The rules that need no server: transitions, what may be sent, what can be stored, what a history must be."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel

from threadhold.runner.app import Hosted, Threadhold
from threadhold.runner.content import checked_content, checked_key
from threadhold.runner.errors import InvalidInput, MessageTooLarge, UnknownAgent
from threadhold.runner.history import continuable, dumped, loaded, request_of
from threadhold.runner.machine import (
    RUN_TRANSITIONS,
    InvalidTransition,
    RunStatus,
    advance,
    is_active,
    is_archivable,
    is_final,
    is_replayable,
    is_resumable,
)
from threadhold.runner.records import MESSAGE_BYTES_MAX, InboxMessage
from threadhold.runner.storable import bounded, storable, storable_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


def reachable(start: RunStatus) -> set[RunStatus]:
    """Return every status that a run in this one can come to."""
    seen: set[RunStatus] = set()
    frontier = [start]
    while frontier:
        status = frontier.pop()
        for after in RUN_TRANSITIONS[status] - seen:
            seen.add(after)
            frontier.append(after)
    return seen


def test_every_live_run_can_be_stopped() -> None:
    assert all(RunStatus.STOPPED in RUN_TRANSITIONS[status] for status in RunStatus if is_active(status))


def test_nothing_leaves_a_final_status() -> None:
    assert {status for status in RunStatus if is_final(status)} == {
        RunStatus.COMPLETED,
        RunStatus.STOPPED,
        RunStatus.FAILED,
    }


def test_what_may_be_resumed_replayed_and_archived_is_read_off_the_table() -> None:
    assert {status for status in RunStatus if is_resumable(status)} == {RunStatus.RUNNING, RunStatus.PAUSED}
    assert {status for status in RunStatus if is_replayable(status)} == {
        status for status in RunStatus if not is_active(status)
    }
    assert is_archivable(None)
    assert [status for status in RunStatus if is_archivable(status) and is_active(status)] == []


def test_only_pending_runs_start_and_a_dead_worker_strands_nobody() -> None:
    assert {before for before, after in RUN_TRANSITIONS.items() if RunStatus.RUNNING in after} == {
        RunStatus.PENDING
    }
    assert {RunStatus.PENDING, RunStatus.FAILED} <= RUN_TRANSITIONS[RunStatus.RUNNING]


def test_every_status_can_be_reached_and_can_end() -> None:
    assert reachable(RunStatus.PENDING) == set(RunStatus)
    assert all(any(is_final(end) for end in reachable(status)) for status in RunStatus if is_active(status))


def test_refused_step_says_what_was_tried() -> None:
    with pytest.raises(InvalidTransition, match="invalid run transition: pending -> completed"):
        advance(RunStatus.PENDING, RunStatus.COMPLETED)


@pytest.mark.parametrize("content", ["", "  \n", "a\x00b", "\ud800", None, 7, ["x"]])
def test_what_cannot_be_sent_is_refused_with_its_field(content: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_content(content)
    assert refused.value.data["field"] == "content"


def test_size_is_counted_in_bytes() -> None:
    assert checked_content("é" * (MESSAGE_BYTES_MAX // 2))
    with pytest.raises(MessageTooLarge) as refused:
        checked_content("é" * (MESSAGE_BYTES_MAX // 2) + "a")
    assert refused.value.data["size"] == MESSAGE_BYTES_MAX + 1


@pytest.mark.parametrize("key", ["", "x" * 129, "ä", "a\nb"])
def test_bad_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidInput):
        checked_key(key)


@given(JSON)
def test_storable_values_are_json_for_everybody(value: object) -> None:
    text = json.dumps(storable(value), allow_nan=False)
    assert "\\u0000" not in text
    assert storable(json.loads(text)) == json.loads(text)


@given(st.text())
def test_ordinary_text_is_stored_as_it_is(text: str) -> None:
    assert storable_text(text) == text.replace("\x00", "\ufffd")


def test_long_values_are_cut_and_say_so() -> None:
    assert bounded({"a": 1}, chars=20) == {"a": 1}
    assert bounded("x" * 30, chars=10) == "x" * 10 + "… (20 more characters)"


def test_app_refuses_nonsense() -> None:
    agent = Agent(TestModel())
    with pytest.raises(ValueError, match="at least one agent"):
        Threadhold(agents={})
    with pytest.raises(ValueError, match="not an agent's name"):
        Threadhold(agents={"a b": agent})
    with pytest.raises(TypeError, match="agents have names"):
        Threadhold(agents=[agent])  # type: ignore[arg-type]
    for no_agent in (3, Hosted(cast(Any, "gpt"))):
        with pytest.raises(TypeError, match="'a' is no pydantic-ai agent but"):
            Threadhold(agents={"a": cast(Any, no_agent)})
    with pytest.raises(ValueError, match="on_busy is one of steer, reject, queue, interrupt, not 'never'"):
        Hosted(agent, on_busy=cast(Any, "never"))
    with pytest.raises(UnknownAgent) as refused:
        Threadhold(agents={"a": agent}).hosted("b")
    assert refused.value.data == {"agent": "b", "known": ["a"]}


def call(id: str) -> ToolCallPart:
    """Return a tool call."""
    return ToolCallPart("t", {"x": 1}, id)


ASKED = ModelRequest(parts=[UserPromptPart("hi")])


@pytest.mark.parametrize(
    "cut_off",
    [
        [ASKED, ModelResponse(parts=[call("1")])],
        [ASKED, ModelResponse(parts=[TextPart("let me see"), call("1"), call("2")])],
        [
            ASKED,
            ModelResponse(parts=[call("1"), call("2")]),
            ModelRequest(parts=[ToolReturnPart("t", "r", "1")], state="interrupted"),
        ],
        [ASKED, ModelResponse(parts=[call("1")]), ModelRequest(parts=[], state="interrupted")],
        [ASKED, ModelResponse(parts=[TextPart("par")], state="interrupted")],
        [ASKED, ModelResponse(parts=[], state="interrupted")],
        [ASKED],
        [],
    ],
)
async def test_cut_off_history_can_be_continued_and_runs_no_call_again(cut_off: list[ModelMessage]) -> None:
    history = [*continuable(loaded(dumped(cut_off))).messages, request_of(message())]
    ran = []
    agent = Agent(TestModel(call_tools=[], custom_output_text="ok"))

    @agent.tool_plain
    def t(x: int) -> str:
        ran.append(x)
        return "again"

    result = await agent.run(None, message_history=history)
    assert (result.output, ran) == ("ok", [])
    calls = {part.tool_call_id for shown in history for part in shown.parts if isinstance(part, ToolCallPart)}
    answered = {
        part.tool_call_id for shown in history for part in shown.parts if isinstance(part, ToolReturnPart)
    }
    assert calls == answered


def message() -> InboxMessage:
    """Return a message that waits."""
    return InboxMessage(id="m1", seq=1, sender="me", content="go on")


def test_requests_name_the_message_that_they_carry() -> None:
    request = request_of(message())
    assert loaded(dumped([request])) == [request]
    assert request.metadata == {"threadhold_message": {"id": "m1", "by": "me"}}
