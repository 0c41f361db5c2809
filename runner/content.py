"""What may be sent and kept. Refused input loses nothing: the caller still has it, and nothing was recorded."""

import json
from collections.abc import Collection
from typing import Any, Final, get_args

from threadhold.runner.errors import InvalidInput, MessageTooLarge
from threadhold.runner.records import KEY_CHARS_MAX, MESSAGE_BYTES_MAX, WatchKind

TITLE_CHARS_MAX: Final = 200
METADATA_CHARS_MAX: Final = 16 * 1024
# Deeper values are read by some JSON libraries and not by others, ours among them.
DEPTH_MAX: Final = 32


def checked_content(content: object, *, field: str = "content") -> str:
    """Return a message's text if it may be sent; `field` is what the caller knows it by.

    Raises:
        InvalidInput: if it is not text, is empty, or holds NUL or half a surrogate pair.
        MessageTooLarge: if it is longer than 64 KiB as UTF-8.
    """
    what = "a message" if field == "content" else f"a {field}"
    if not isinstance(content, str):
        raise InvalidInput(f"{what} is text", field=field)
    if not content.strip():
        raise InvalidInput(f"{what} must not be empty", field=field)
    size = len(_encoded(content, what, field=field))
    if size > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(size, MESSAGE_BYTES_MAX, field=field)
    return content


def checked_key(key: str | None) -> str | None:
    """Return an idempotency key if it may be used.

    Raises:
        InvalidInput: if it is empty, too long, or not printable ASCII.
    """
    if key is None:
        return None
    if not 0 < len(key) <= KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        raise InvalidInput(f"a key is 1 to {KEY_CHARS_MAX} printable ASCII characters", field="key")
    return key


def checked_kinds(kinds: Collection[str] | None) -> frozenset[WatchKind] | None:
    """Return which kinds of frames a watch shows, None for all.

    Raises:
        InvalidInput: if there are none, or one that cannot be chosen.
    """
    if kinds is None:
        return None
    known: tuple[WatchKind, ...] = get_args(WatchKind)
    chosen = frozenset(kind for kind in known if kind in kinds)
    if isinstance(kinds, str) or not chosen or not all(kind in known for kind in kinds):
        text = f"kinds are one or more of {', '.join(known)}; what says where a watch stands always comes"
        raise InvalidInput(text, field="kinds", known=list(known))
    return chosen


def checked_title(title: object) -> str | None:
    """Return a thread's title if it may be kept.

    Raises:
        InvalidInput: if it is not text, is longer than 200 characters, or holds NUL or half a surrogate pair.
    """
    if title is None:
        return None
    if not isinstance(title, str) or len(title) > TITLE_CHARS_MAX:
        raise InvalidInput(f"a title is text of at most {TITLE_CHARS_MAX} characters", field="title")
    _encoded(title, "a title", field="title")
    return title


def checked_metadata(metadata: object) -> dict[str, Any] | None:
    """Return a thread's metadata if it may be kept.

    Raises:
        InvalidInput: if it is no JSON object, is longer than 16,384 characters as JSON or nested more than 32 levels
            deep, or holds NUL or half a surrogate pair.
    """
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise InvalidInput("metadata is an object", field="metadata")
    for text in strings_of(metadata, field="metadata"):
        _encoded(text, "metadata", field="metadata")
    try:
        size = len(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError):
        raise InvalidInput("metadata is not JSON", field="metadata") from None
    if size > METADATA_CHARS_MAX:
        raise InvalidInput(
            f"metadata must have at most {METADATA_CHARS_MAX} characters as JSON", field="metadata"
        )
    return metadata


def strings_of(value: Any, *, field: str) -> list[str]:
    """Return all strings in a JSON value, its keys among them.

    Raises:
        InvalidInput: if it is nested more than 32 levels deep; `field` names what it is.
    """
    return _strings(value, field, 1)


def _strings(value: Any, field: str, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict | list | tuple):
        return []
    if depth > DEPTH_MAX:
        raise InvalidInput(f"{field} must not be nested more than {DEPTH_MAX} levels deep", field=field)
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return [text for item in items for text in _strings(item, field, depth + 1)]


def _encoded(text: str, what: str, *, field: str) -> bytes:
    """Return text as the database keeps it.

    Raises:
        InvalidInput: if it cannot.
    """
    if "\x00" in text:
        raise InvalidInput(f"{what} must not contain NUL characters", field=field)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{what} must be valid Unicode; it holds half a surrogate pair", field=field
        ) from None
