"""What agents and tools tell their watchers themselves: the application's own events, as the data of `draft` frames."""

import json
from typing import Any, Final

from pydantic_ai.messages import CustomEvent
from pydantic_core import to_jsonable_python

DRAFT_CHARS_MAX: Final = 64 * 1024


def draft_data(event: CustomEvent) -> dict[str, Any]:
    """Return an event as JSON values: its name, the call that it came from, and its payload's fields beside them.

    A payload that is no object stands under `data`. One that is not JSON, or has more than `DRAFT_CHARS_MAX` characters
    as JSON, is left out, and `omitted` says so: telling is never worth a run.
    """
    envelope = {
        "event_kind": event.event_kind,
        "name": event.name,
        "tool_call_id": event.tool_call_id,
        "tool_name": event.tool_name,
    }
    try:
        payload = to_jsonable_python(event.to_payload(), inf_nan_mode="null")
        size = len(json.dumps(payload, allow_nan=False))
    except Exception:  # it is the application's code, and may hold and raise anything
        return envelope | {"omitted": "not JSON"}
    if size > DRAFT_CHARS_MAX:
        return envelope | {"omitted": "too large", "chars": size}
    if payload is None:
        return envelope
    return (payload if isinstance(payload, dict) else {"data": payload}) | envelope
