"""What may be sent. Refused input loses nothing: the caller still has it, and nothing was recorded."""

from threadhold.runner.errors import InvalidInput, MessageTooLarge
from threadhold.runner.records import KEY_CHARS_MAX, MESSAGE_BYTES_MAX


def checked_content(content: object) -> str:
    """Return a message's text if it may be sent.

    Raises:
        InvalidInput: if it is not text, is empty, or holds NUL or half a surrogate pair.
        MessageTooLarge: if it is longer than 64 KiB as UTF-8.
    """
    if not isinstance(content, str):
        raise InvalidInput("a message is text", field="content")
    if not content.strip():
        raise InvalidInput("a message must not be empty", field="content")
    if "\x00" in content:
        raise InvalidInput("a message must not contain NUL characters", field="content")
    try:
        size = len(content.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            "a message must be valid Unicode; it holds half a surrogate pair", field="content"
        ) from None
    if size > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(size, MESSAGE_BYTES_MAX)
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
