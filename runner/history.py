"""What the model has been shown and has said: raw in the store, made valid when it is loaded. Values in, values out."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    UserPromptPart,
    repair_messages,
)

from threadhold.runner.records import InboxMessage

# Under this key of a request's metadata stands the message of the inbox that it carries.
MESSAGE_KEY = "threadhold_message"


class HistoryUnsafe(Exception):
    """What is stored of the thread's history cannot be read; nothing was sent to a model."""


def request_of(message: InboxMessage) -> ModelRequest:
    """Return the model request that shows one message of the inbox."""
    return ModelRequest(
        parts=[UserPromptPart(message.content)],
        metadata={MESSAGE_KEY: {"id": message.id, "by": message.sender}},
    )


def dumped(messages: Sequence[ModelMessage]) -> list[Any]:
    """Return messages as JSON values, for the store.

    Raises:
        ValueError: if a tool returned something that is not JSON-like.
    """
    values: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return values


def loaded(values: Sequence[Any]) -> list[ModelMessage]:
    """Return messages from the store's JSON values.

    Raises:
        ValueError: if they are not messages of this library's version.
    """
    return ModelMessagesTypeAdapter.validate_python(list(values))


def continuable(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a history that every provider accepts and that a new request may follow.

    Wherever the last run was cut off, by a stop, a crash or a lost claim, calls without a result are closed as
    interrupted, so that none is ever executed again by accident. Requests that carry nothing are left out.
    """
    kept = [message for message in history if not _is_empty(message)]
    return list(repair_messages(kept))


def _is_empty(message: ModelMessage) -> bool:
    """Tell whether a message says nothing: a request or response that was cut off before its first part."""
    return not message.parts
