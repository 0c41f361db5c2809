"""Exports: the record as lines of JSON, and places in it to go on from."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from threadhold.runner.errors import InvalidInput
from threadhold.runner.records import Fact

CURSOR_PATTERN: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]{1,18}$"
"""What a cursor looks like, as a regular expression that all languages read alike."""
_CURSOR: Final = re.compile(CURSOR_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the record: behind the fact `seq` of a thread, and before every thread with a higher id."""

    thread: str
    seq: int

    def cursor(self) -> str:
        """Return the place as text; it grants nothing."""
        return f"{self.thread}.{self.seq}"


BEGIN: Final = Place(thread="00000000-0000-0000-0000-000000000000", seq=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFact(Fact):
    """A fact with the thread whose log it stands in."""

    thread: str

    @property
    def place(self) -> Place:
        """The place behind it."""
        return Place(thread=self.thread, seq=self.seq)

    def line(self) -> str:
        """Return it as a line."""
        return _line(
            {
                "thread": self.thread,
                "seq": self.seq,
                "run": self.run,
                "fence": self.fence,
                "kind": self.kind,
                "at": self.at.isoformat(),
                "data": self.data,
                "admission": self.admission,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPage:
    """A part of the record; `next` is the place behind it, None if it is the last one of now."""

    items: Sequence[ExportedFact]
    next: Place | None


def end_line(facts: int) -> str:
    """Return the line behind so many facts that says that these were all."""
    return _line({"end": True, "facts": facts})


def cut_line(error: dict[str, Any]) -> str:
    """Return the line that says that more would follow, and why it does not."""
    return _line({"end": False, "error": error})


def _line(value: dict[str, Any]) -> str:
    # Escaped to ASCII: many a program takes some characters of a text for the end of a line.
    return json.dumps(value, separators=(",", ":"), default=str) + "\n"


def parse_place(text: str) -> Place:
    """Read a cursor.

    Raises:
        InvalidInput: it does not have the form of one.
    """
    if _CURSOR.fullmatch(text) is None:
        raise InvalidInput(
            f"{text[:80]!r} is no place in an export; name the last line as THREAD.SEQ", field="after"
        )
    thread, _, seq = text.partition(".")
    return Place(thread=thread, seq=int(seq))
