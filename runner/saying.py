"""The text of the response in progress, put together from its events. Values in, values out."""

from typing import Any, Final

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)

# More than any model says at once; what comes after is not kept in case of a crash.
CHARS_MAX: Final = 256 * 1024


class Saying:
    """What the model has said so far in one response."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}
        self._chars = 0

    def hear(self, event: Any) -> bool:
        """Take an event in; True if it brought text."""
        match event:
            case PartStartEvent(index=index, part=TextPart(content=text)):
                self._texts[index] = []
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                pass
            case _:
                return False
        if not text or self._chars > CHARS_MAX:
            return False
        self._texts.setdefault(index, []).append(text)
        self._chars += len(text)
        return True

    def message(self) -> ModelResponse:
        """Return it as a response that was cut off."""
        parts = [TextPart("".join(pieces)) for _, pieces in sorted(self._texts.items()) if pieces]
        return ModelResponse(parts=parts, state="interrupted")
