"""Keeps secrets out of live frames, also where one comes in pieces: in a model's deltas, or in a tool's events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai.messages import (
    CustomEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from threadhold.runner.drafts import draft_data
from threadhold.runner.scrubbing import Scrubber, Stream

SHOWN_CHARS_MAX: Final = 3
"""So much of what may begin a secret is shown at once: the end of many a word is the beginning of some key."""
PATHS_MAX: Final = 200
"""How many texts of one kind of event are followed from one event to the next."""
ENVELOPE: Final = frozenset({"event_kind", "name", "tool_call_id", "tool_name"})

Delta = type[TextPartDelta] | type[ThinkingPartDelta] | type[ToolCallPartDelta]


class LiveText:
    """What a model says, without the values that are known to be secrets.

    Args:
        scrubber: that knows them.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._streams: dict[int, Stream] = {}

    def hear(self, event: Any) -> Iterator[Any]:
        """Return what may be shown by now: nothing, the event, or what was held back before it as well."""
        match event:
            case PartStartEvent(index=index, part=part):
                self._streams.pop(index, None)
                if self._scrubber.busy:
                    self._streams[index] = self._scrubber.stream()
                    event = replace(event, part=self._begun(index, part))
            case PartDeltaEvent(index=index, delta=delta) if index in self._streams:
                event = replace(event, delta=self._continued(index, delta))
            case PartEndEvent(index=index, part=part) if index in self._streams:
                rest = self._streams.pop(index).end()
                if rest:
                    yield PartDeltaEvent(index=index, delta=_delta(part, rest))
        yield event

    def clean(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return an event's data, in which texts are whole, or have been cleaned already."""
        if data["event_kind"] == "part_delta":
            return data
        clean: dict[str, Any] = self._scrubber.value(data)
        return clean

    def _begun(self, index: int, part: Any) -> Any:
        match part:
            case TextPart() | ThinkingPart():
                return replace(part, content=self._streams[index].feed(part.content))
            case ToolCallPart(args=str() as args):
                return replace(part, args=self._streams[index].feed(args))
        return part

    def _continued(self, index: int, delta: Any) -> Any:
        feed = self._streams[index].feed
        match delta:
            case TextPartDelta(content_delta=text):
                return replace(delta, content_delta=feed(text))
            case ThinkingPartDelta(content_delta=str() as text):
                return replace(delta, content_delta=feed(text))
            case ToolCallPartDelta(args_delta=str() as text):
                return replace(delta, args_delta=feed(text))
            case ToolCallPartDelta(args_delta=dict() as args):
                return replace(delta, args_delta=self._scrubber.value(args))
        return delta


def _delta(part: Any, text: str) -> Any:
    match part:
        case ThinkingPart():
            return ThinkingPartDelta(content_delta=text)
        case ToolCallPart(tool_call_id=id):
            return ToolCallPartDelta(args_delta=text, tool_call_id=id)
    return TextPartDelta(content_delta=text)


class Drafts:
    """The events of tools, without secrets.

    The texts at one place of all events of one name are taken for one text in pieces, in case they are: an event that
    ends in what may be a secret's beginning waits for the next one, or for the end of the call.

    Args:
        scrubber: finds the secrets.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._kinds: dict[tuple[str | None, str], _Kind] = {}

    def take(self, event: CustomEvent) -> list[dict[str, Any]]:
        """Take an event in and return the drafts that may be shown by now, in their order."""
        data = draft_data(event)
        key = (event.tool_call_id, event.name)
        return self._kinds.setdefault(key, _Kind(self._scrubber)).take(data)

    def end(self, call: str | None) -> list[dict[str, Any]]:
        """Return what was held back of a call's events, which has ended."""
        keys = [key for key in self._kinds if key[0] == call]
        return [draft for key in keys for draft in self._kinds.pop(key).end()]

    def end_all(self) -> list[dict[str, Any]]:
        """Return all that was held back."""
        kinds, self._kinds = self._kinds, {}
        return [draft for kind in kinds.values() for draft in kind.end()]


@dataclass(slots=True)
class _Text:
    """The text at one place of an event, which may go on in the next one."""

    stream: Stream
    shown: int = 0
    """How much of what the stream holds back has been shown."""
    pieces: list[tuple[Any, Any, str]] = field(default_factory=list)
    """What was said in events that still wait: the object or list that holds it, where, and the text."""
    clean: str = ""

    def feed(self, piece: str) -> None:
        raw = self.stream.held + piece
        self._settle(self.stream.feed(piece), raw)

    def end(self) -> None:
        raw = self.stream.held
        self._settle(self.stream.end(), raw)

    def _settle(self, out: str, raw: str) -> None:
        """Take in what has come out of the stream, without what was shown of it before."""
        begun = raw[: self.shown]
        still_held = begun.startswith(out)
        self.shown = len(begun) - len(out) if still_held else 0
        self.clean += "" if still_held else out.removeprefix(begun)

    @property
    def waits(self) -> bool:
        """Whether something is not shown yet that may begin a secret."""
        return bool(self.pieces) and len(self.stream.held) > SHOWN_CHARS_MAX

    def show(self) -> None:
        """Put the clean text where the pieces were."""
        self.clean += self.stream.held[self.shown :]
        self.shown = len(self.stream.held)
        if self.clean != "".join(piece for _, _, piece in self.pieces):
            for place, (holder, where, _) in enumerate(self.pieces):
                holder[where] = self.clean if place == 0 else ""
        self.clean = ""
        self.pieces.clear()


class _Kind:
    """All events of one name within one call."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._texts: dict[tuple[Any, ...], _Text] = {}
        self._waiting: list[dict[str, Any]] = []

    def take(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        own = self._keyed({key: item for key, item in data.items() if key not in ENVELOPE})
        draft = own | {key: data[key] for key in ENVELOPE} | {"name": self._scrubber.text(data["name"])}
        places = [place for place in _places(draft, ()) if place[0][0] not in ENVELOPE]
        shown = self._settled({path for path, _, _ in places})
        for path, holder, where in places:
            self._hear(path, holder, where)
        self._waiting.append(draft)
        if any(text.waits for text in self._texts.values()):
            return shown
        return shown + self._show()

    def _settled(self, paths: set[tuple[Any, ...]]) -> list[dict[str, Any]]:
        """Show the texts that the next event has not gone on with, and return the events that wait for nothing more."""
        for path, text in self._texts.items():
            if path not in paths:
                text.show()
        if any(text.pieces for text in self._texts.values()):
            return []
        shown, self._waiting = self._waiting, []
        return shown

    def end(self) -> list[dict[str, Any]]:
        for text in self._texts.values():
            text.end()
        return self._show()

    def _show(self) -> list[dict[str, Any]]:
        for text in self._texts.values():
            text.show()
        shown, self._waiting = self._waiting, []
        return shown

    def _hear(self, path: tuple[Any, ...], holder: Any, where: Any) -> None:
        piece = holder[where]
        if path not in self._texts and len(self._texts) >= PATHS_MAX:
            holder[where] = self._scrubber.text(piece)
            return
        text = self._texts.setdefault(path, _Text(self._scrubber.stream()))
        text.pieces.append((holder, where, piece))
        text.feed(piece)

    def _keyed(self, value: Any) -> Any:
        """Return a copy that may be changed, without secrets in keys and under keys that name one."""
        if isinstance(value, dict):
            return {self._scrubber.text(key): self._under(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._keyed(item) for item in value]
        return value if isinstance(value, str) else self._scrubber.value(value)

    def _under(self, key: str, item: Any) -> Any:
        return self._keyed(self._scrubber.named(item) if self._scrubber.names(key) else item)


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Return where the texts of a JSON value stand."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for where, item in list(items):
        if isinstance(item, str):
            yield (*path, where), value, where
        else:
            yield from _places(item, (*path, where))
