"""The bodies of requests, checked here for their shape only; what they mean is for the Runner to judge.

Answers have no schemas of their own: they are the Runner's records, field by field.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from threadhold.runner.records import KEY_CHARS_MAX, OnBusy, Thread

METADATA_CHARS_MAX: Final = 16 * 1024
# Deeper values are read by some JSON libraries and not by others, ours among them.
METADATA_DEPTH_MAX: Final = 32


def storable(text: str) -> str:
    """Return the text.

    Raises:
        ValueError: if the database could not keep it.
    """
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode; it holds half a surrogate pair") from None
    return text


def _strings(value: Any, depth: int = 1) -> list[str]:
    """Return all strings in a JSON value.

    Raises:
        ValueError: if it is nested too deeply.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict | list):
        return []
    if depth > METADATA_DEPTH_MAX:
        raise ValueError(f"must not be nested more than {METADATA_DEPTH_MAX} levels deep")
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return [text for item in items for text in _strings(item, depth + 1)]


def _small(metadata: dict[str, Any]) -> dict[str, Any]:
    for text in _strings(metadata):
        storable(text)
    if len(json.dumps(metadata, allow_nan=False)) > METADATA_CHARS_MAX:
        raise ValueError(f"must have at most {METADATA_CHARS_MAX} characters as JSON")
    return metadata


AgentName = Annotated[str, Field(min_length=1, max_length=200, description="One of the app's agents.")]
# These patterns are for readers of the OpenAPI document; the Runner refuses what breaks them, in its words.
_NOT_EMPTY: Final = {"minLength": 1, "pattern": r"^[^\x00]*[^\s\x00][^\x00]*$"}
KEY_SCHEMA: Final[dict[str, Any]] = {"minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": r"^[\x20-\x7e]+$"}
CURSOR_SCHEMA: Final[dict[str, Any]] = {"pattern": r"^(start|head|[0-9]{1,15}-[0-9]{1,18}-[0-9]{1,10})$"}

Content = Annotated[
    str, Field(description="The text, at most 64 KiB as UTF-8.", json_schema_extra={**_NOT_EMPTY})
]
Busy = Annotated[OnBusy | None, Field(description="What a message to a busy thread means; default steer.")]
WaitS = Annotated[float, Field(ge=0, le=60, description="Seconds to wait for the run's end.")]
Title = Annotated[str, Field(max_length=200), AfterValidator(storable)]
# Ids arrive as text, which strict mode would not take for an id.
Id = Annotated[UUID, Field(strict=False)]


class Body(BaseModel):
    """A request body: unknown fields and wrong types are refused rather than guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewThread(Body):
    """Make a thread."""

    agent: AgentName
    id: Id | None = Field(None, description="An id of your own; the same call again returns the same thread.")
    title: Title | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_small)] = {}


class NewMessage(Body):
    """Send to a thread."""

    content: Content
    on_busy: Busy = None
    agent: AgentName | None = Field(None, description="Makes the thread for this agent if there is none yet.")


class FirstMessage(Body):
    """Make a thread from its first message."""

    agent: AgentName
    content: Content
    on_busy: Busy = None


class Stop(Body):
    """Stop a run."""

    wait: WaitS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentList:
    """The names of the agents that may be sent to."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPage:
    """Threads, newest first; `next_cursor` is None on the last page."""

    items: Sequence[Thread]
    next_cursor: str | None
