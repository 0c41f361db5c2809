"""Turns calls that an agent has deferred into requests to people. Values in, values out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ToolCallPart

from threadhold.runner.decisions import TERMS_KEY, NewRequest, Terms
from threadhold.runner.errors import RunFailure

REQUESTS_MAX: Final = 100


def requests_of(deferred: DeferredToolRequests, *, terms: Terms) -> list[NewRequest]:
    """Return what a run is to wait for.

    Args:
        deferred: the calls that the agent has deferred.
        terms: who may answer, and until when, unless the tool set terms of its own.

    Raises:
        RunFailure: if there are more than 100, or a call's arguments are no object.
    """
    calls = [*deferred.approvals, *deferred.calls]
    if len(calls) > REQUESTS_MAX:
        text = f"the agent waits for {len(calls)} answers at once; {REQUESTS_MAX} are allowed"
        raise RunFailure(text, reason="too_many_requests")
    return [_request(call, deferred, terms) for call in calls]


def _request(call: ToolCallPart, deferred: DeferredToolRequests, terms: Terms) -> NewRequest:
    metadata = dict(deferred.metadata.get(call.tool_call_id) or {})
    own = metadata.pop(TERMS_KEY, None)
    try:
        args = call.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError) as error:
        raise RunFailure(
            f"the arguments of {call.tool_name} are no object", reason="deferred_call"
        ) from error
    return NewRequest(
        kind=deferred.kind(call.tool_call_id),
        call_id=call.tool_call_id,
        tool=call.tool_name,
        args=args,
        terms=_terms(own) if own is not None else terms,
        metadata=metadata,
    )


def _terms(value: Any) -> Terms:
    if isinstance(value, Terms):
        return replace(value)
    if isinstance(value, Mapping):
        return Terms(**value)
    raise RunFailure("the terms of a request are a Terms", reason="deferred_call")
