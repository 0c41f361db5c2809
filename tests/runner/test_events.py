"""Events on their way to the watchers."""

from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPartDelta,
    ToolReturnPart,
)

from threadhold.runner.observer import event_data

EVENTS: TypeAdapter[Any] = TypeAdapter(AgentStreamEvent)


def test_events_are_read_back_by_the_agent_library() -> None:
    for delta in (
        TextPartDelta("ä€"),
        ThinkingPartDelta(content_delta="hm"),
        ToolCallPartDelta(args_delta="{"),
    ):
        event = PartDeltaEvent(index=2, delta=delta)
        assert EVENTS.validate_python(event_data(event)) == event


def test_event_that_is_not_json_is_named_and_left_out() -> None:
    event = FunctionToolResultEvent(part=ToolReturnPart("odd", content=object(), tool_call_id="c"))
    assert event_data(event) == {"event_kind": "function_tool_result", "omitted": "not JSON"}
