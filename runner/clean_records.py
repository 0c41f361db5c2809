"""What a run records, without the values that are known to be secrets in it. Values in, values out."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import ModelMessage

from threadhold.runner.decisions import NewRequest
from threadhold.runner.history import dumped
from threadhold.runner.machine import FailReason, StopReason
from threadhold.runner.records import NewFact
from threadhold.runner.scrubbing import Scrubber

CUT_OFF = "interrupted"

FREE: Final = frozenset(
    {"args", "content", "metadata", "output", "provider_details", "result", "vendor_metadata"}
)
"""Under these names stands what models, tools and people make, keys included. Other keys are of the library or ours."""
KEPT: Final = frozenset({
    "call_id", "canonical_system", "conversation_id", "fact", "finish_reason", "force_download", "idempotency_key",
    "kind", "media_type", "outcome", "part_kind", "retry", "run_id", "scope", "state", "status", "timestamp", "tool",
    "tool_call_id", "tool_kind", "tool_name", "ttl", "usage", "verdict",
})  # fmt: skip
"""What stands under these names is a word of the library or ours, and says what the rest is: it has to stay readable,
also where somebody's secret is the same word."""
ITEMS: Final = frozenset({
    "audio-url", "binary", "cache-point", "document-url", "image-url", "structured-content", "text-content",
    "uploaded-file", "video-url",
})  # fmt: skip
"""The kinds of the library's objects within contents."""
DEPTH_MAX: Final = 64
"""Deeper than any message of the library."""
REASONS: Final = frozenset((*FailReason, *StopReason))


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
    # Below its first level a fact has no words that anybody goes by.
    return _clean(data, scrubber, depth=1)


def _message(message: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    if message.get("state") == CUT_OFF:
        message = message | {"parts": [_cut(part, scrubber) for part in message["parts"]]}
    return _clean(message, scrubber, depth=DEPTH_MAX)


def _clean(record: dict[str, Any], scrubber: Scrubber, *, depth: int) -> dict[str, Any]:
    tells = scrubber.value(record) is not record
    clean: dict[str, Any] = _structured(record, scrubber, depth=depth) if tells else record
    return clean


def _structured(value: Any, scrubber: Scrubber, *, depth: int) -> Any:
    """Return a value whose keys are known without secrets in what they leave open.

    Args:
        value: as JSON.
        scrubber: finds the secrets.
        depth: down to which level of objects words are kept.
    """
    if isinstance(value, list):
        return [_structured(item, scrubber, depth=depth) for item in value]
    if not isinstance(value, dict):
        return scrubber.value(value)
    return {key: _field(key, item, scrubber, depth=depth) for key, item in value.items()}


def _field(key: str, item: Any, scrubber: Scrubber, *, depth: int) -> Any:
    if depth > 0 and (key in KEPT or (key == "reason" and isinstance(item, str) and item in REASONS)):
        return item
    return _free(item, scrubber) if key in FREE else _structured(item, scrubber, depth=depth - 1)


def _item(value: dict[str, Any], scrubber: Scrubber) -> Any:
    """Return one of the library's objects; a file has to stay base64."""
    clean = _structured(value, scrubber, depth=1)
    if isinstance(data := value.get("data"), str):
        clean["data"] = _data(data, scrubber)
    return clean


def _data(data: str, scrubber: Scrubber) -> str:
    try:
        raw = base64.b64decode(data, altchars=b"-_", validate=True)
    except ValueError:
        return scrubber.text(data)
    # As in what tools return: each byte is read as a character, and what is replaced is ASCII.
    text = raw.decode("latin-1")
    clean = scrubber.text(text)
    return (
        scrubber.text(data) if clean == text else base64.urlsafe_b64encode(clean.encode("latin-1")).decode()
    )


def _free(value: Any, scrubber: Scrubber) -> Any:
    """Return a value in which anything may be secret, but for the library's objects in it."""
    if isinstance(value, list):
        return [_free(item, scrubber) for item in value]
    if not isinstance(value, dict):
        return scrubber.value(value)
    if isinstance(kind := value.get("kind"), str) and kind in ITEMS:
        return _item(value, scrubber)
    return {scrubber.value(key): _free(item, scrubber) for key, item in value.items()}


def _cut(part: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    cut = {key: scrubber.cut(part[key]) for key in ("content", "args") if isinstance(part.get(key), str)}
    return part | cut
