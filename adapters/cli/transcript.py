"""A thread's history as text for a person. Pure: messages as pydantic-ai writes them in, pieces of text out."""

from collections.abc import Iterator
from typing import Any

from threadhold.adapters.cli.view import RESULT_CHARS_MAX, Piece, call_text, short


def transcript(message: Any) -> Iterator[Piece]:
    """Yield what a message says, part by part."""
    parts = message.get("parts") if isinstance(message, dict) else None
    for part in parts if isinstance(parts, list) else ():
        yield _part(part if isinstance(part, dict) else {})


def _part(part: dict[str, Any]) -> Piece:
    content, tool = part.get("content"), part.get("tool_name")
    match part.get("part_kind"):
        case "user-prompt":
            return Piece(f"user: {_text(content)}\n", "other")
        case "system-prompt":
            return Piece(f"system: {_text(content)}\n", "note")
        case "text":
            return Piece(f"{_text(content)}\n", "answer")
        case "thinking":
            return Piece(f"(thinks: {short(content or '', RESULT_CHARS_MAX)})\n", "note")
        case "tool-call" | "builtin-tool-call":
            return Piece(f"-> {call_text(str(tool), part.get('args'))}\n", "tool")
        case "tool-return" | "builtin-tool-return":
            return Piece(f"<- {short(content, RESULT_CHARS_MAX)}\n", "tool")
        case "retry-prompt":
            return Piece(f"<- {tool or 'the answer'} refused: {short(content, RESULT_CHARS_MAX)}\n", "tool")
        case kind:
            return Piece(f"({kind or 'something else'})\n", "note")


def _text(content: Any) -> str:
    """Return a text as it is, and anything else on one line, cut."""
    return content if isinstance(content, str) else short(content, RESULT_CHARS_MAX)
