"""Makes any JSON-like value one that Postgres and every JSON reader accepts."""

import math
from typing import Any

REPLACEMENT = "\ufffd"


def storable_text(text: str) -> str:
    """Replace NUL and lone surrogates, which neither jsonb nor UTF-8 can hold."""
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def storable(value: Any) -> Any:
    """Return the value with unstorable characters replaced and NaN or infinities turned into text."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def bounded(value: Any, *, chars: int) -> Any:
    """Return the value, or its beginning as text when its JSON-like text is longer than `chars`."""
    text = value if isinstance(value, str) else str(value)
    if len(text) <= chars:
        return value
    return f"{text[:chars]}… ({len(text) - chars} more characters)"
