"""Events on their way to the watchers."""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    AgentStreamEvent,
    CustomEvent,
    PartDeltaEvent,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPartDelta,
)

from threadhold.runner.observer import event_data

EVENTS: TypeAdapter[Any] = TypeAdapter(AgentStreamEvent)


@dataclass(kw_only=True)
class OddEvent(CustomEvent):
    """An application's event with something that JSON cannot hold."""

    thing: Any = None


def test_events_are_read_back_by_the_agent_library() -> None:
    for delta in (
        TextPartDelta("ä€"),
        ThinkingPartDelta(content_delta="hm"),
        ToolCallPartDelta(args_delta="{"),
    ):
        event = PartDeltaEvent(index=2, delta=delta)
        assert EVENTS.validate_python(event_data(event)) == event


def test_event_that_is_not_json_is_named_and_left_out() -> None:
    assert event_data(OddEvent(thing=object())) == {"event_kind": "custom", "omitted": "not JSON"}
