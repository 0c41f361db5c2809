"""Errors as MCP tells them: our codes, whichever side they come from."""

from typing import Any, Final

from pydantic import ValidationError

from threadhold.adapters.http.errors import InvalidRequest, refusal
from threadhold.adapters.replies import ClientError

META_KEY: Final = "threadhold/error"


def told(error: Exception) -> dict[str, Any]:
    """Return an error's `code`, `message`, `retryable` and `data`; one that nobody foresaw is told as an id only."""
    if isinstance(error, ClientError):
        return {
            "code": error.code,
            "message": error.message,
            "retryable": error.passing,
            "data": error.data,
        }
    if isinstance(error, ValidationError):
        error = InvalidRequest(error.errors(include_url=False, include_context=False, include_input=False))
    return refusal(error).error()


def is_missing(error: Exception) -> bool:
    """Tell whether an error says that there is nothing there for whoever asks."""
    return getattr(error, "code", None) == "not_found"
