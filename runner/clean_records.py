"""What a run records, without the values that are known to be secrets in it. Values in, values out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage

from threadhold.runner.decisions import NewRequest
from threadhold.runner.history import dumped
from threadhold.runner.records import NewFact
from threadhold.runner.scrubbing import Scrubber

CUT_OFF = "interrupted"


def clean_facts(facts: Sequence[NewFact], scrubber: Scrubber) -> list[NewFact]:
    """Return facts as they may be recorded."""
    return [replace(fact, data=_fact(fact.data, scrubber)) for fact in facts]


def clean_history(messages: Sequence[ModelMessage], scrubber: Scrubber) -> list[Any]:
    """Return messages as JSON values that may be recorded.

    Raises:
        ValueError: if a tool returned something that is not JSON-like.
    """
    return [_message(message, scrubber) for message in dumped(messages)]


def clean_requests(requests: Sequence[NewRequest], scrubber: Scrubber) -> list[NewRequest]:
    """Return requests as they may be recorded; their arguments are those that the history holds."""
    return [
        replace(each, args=scrubber.value(each.args), metadata=scrubber.value(each.metadata))
        for each in requests
    ]


def _fact(data: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    if data.get("state") == CUT_OFF and isinstance(data.get("text"), str):
        data = data | {"text": scrubber.cut(data["text"])}
    clean: dict[str, Any] = scrubber.value(data)
    return clean


def _message(message: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    if message.get("state") == CUT_OFF:
        message = message | {"parts": [_cut(part, scrubber) for part in message["parts"]]}
    clean: dict[str, Any] = scrubber.value(message)
    return clean


def _cut(part: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    cut = {key: scrubber.cut(part[key]) for key in ("content", "args") if isinstance(part.get(key), str)}
    return part | cut
