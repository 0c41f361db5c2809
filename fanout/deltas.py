"""Joining the deltas of a streamed answer: many small events of a part become one, with the same effect."""

from dataclasses import dataclass, field
from typing import Any, Final

# The field of each kind of delta whose texts can be joined.
_TEXT_OF: Final = {"text": "content_delta", "thinking": "content_delta", "tool_call": "args_delta"}
# Fields that say which part a delta belongs to. Any other field has an effect of its own, and is never
# joined.
_IDENTITY: Final = frozenset({"part_delta_kind", "provider_name", "tool_call_id"})


@dataclass(slots=True, kw_only=True)
class OpenDelta:
    """A delta that still grows."""

    data: dict[str, Any]
    field_name: str
    seq: int
    texts: list[str] = field(default_factory=list)
    size: int = 0

    @classmethod
    def of(cls, data: dict[str, Any], *, seq: int) -> "OpenDelta | None":
        """Return the event as an open delta, or None if it is not one whose text can be joined."""
        delta = data.get("delta")
        if data.get("event_kind") != "part_delta" or not isinstance(delta, dict):
            return None
        name = _TEXT_OF.get(delta.get("part_delta_kind", ""))
        if name is None or not isinstance(delta.get(name), str):
            return None
        if any(value is not None for key, value in delta.items() if key not in _IDENTITY and key != name):
            return None
        opened = cls(data=data, field_name=name, seq=seq)
        opened._append(delta[name])
        return opened

    def absorb(self, data: dict[str, Any], *, seq: int) -> bool:
        """Take the next event in if it continues this one; tell whether it did."""
        later = OpenDelta.of(data, seq=seq)
        if later is None or seq != self.seq or not self._continues(later):
            return False
        self._append(later.texts[0])
        return True

    def sealed(self) -> dict[str, Any]:
        """Return one event with all the text."""
        delta = self.data["delta"] | {self.field_name: "".join(self.texts)}
        return self.data | {"delta": delta}

    def _append(self, text: str) -> None:
        self.texts.append(text)
        self.size += len(text)

    def _continues(self, later: "OpenDelta") -> bool:
        mine, other = self.data["delta"], later.data["delta"]
        if self.data.get("index") != later.data.get("index") or self.data.keys() != later.data.keys():
            return False
        return all(mine.get(key) == other.get(key) for key in _IDENTITY)
