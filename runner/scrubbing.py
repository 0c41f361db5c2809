"""Keeps secrets out of what models, watchers, records and logs see. Values in, values out.

What is a secret is known (a value that a call was given, in any of the forms that programs write it in) or looks like
one (`secret_patterns`). In a text the two are found apart, and whatever either of them covers is replaced, so that
neither hides a part of what the other would find.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

from threadhold.runner.secret_forms import VALUE_CHARS_MIN, forms_of
from threadhold.runner.secret_patterns import (
    BEGUN,
    END_MAX,
    LOOK_BEHIND,
    NAMED,
    OPENING_MAX,
    OPENINGS,
    PATTERNS,
    SIGHT,
)

MARKER: Final = "[secret]"
DIGITS_BITS_MAX: Final = 4096
"""Larger numbers are not looked at."""


class Span(NamedTuple):
    """A part of a text that is to be replaced."""

    start: int
    end: int


class Found(NamedTuple):
    """What is to be replaced, up to where that is sure whatever follows, and where to go on from."""

    spans: list[Span]
    sure: int
    at: int


class Finder(Protocol):
    """Finds secrets in a text that may grow."""

    def find(self, text: str, at: int, *, whole: bool) -> Found:
        """Return what is to be replaced from `at` on.

        Args:
            text: all there is so far.
            at: where to begin; what stands before it is only context.
            whole: whether nothing follows.
        """
        ...


class Known:
    """Values that are secrets for now, each for as long as somebody says so. Safe to use from any thread."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self._holders: Counter[str] = Counter()
        self._forms_of: dict[str, frozenset[str]] = {}
        self._forms: tuple[str, ...] = ()
        for value in values:
            self.add(value)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def add(self, value: str) -> None:
        """Hold a value as a secret; each `add` needs a `discard`."""
        with self._lock:
            self._holders[value] += 1
            if self._holders[value] == 1:
                self._forms_of[value] = frozenset(form for form in forms_of(value) if form not in MARKER)
                self._renew()

    def discard(self, value: str) -> None:
        """Let go of a value; it is no secret any more once everybody has."""
        with self._lock:
            self._holders[value] -= 1
            if self._holders[value] <= 0:
                del self._holders[value], self._forms_of[value]
                self._renew()

    def _renew(self) -> None:
        forms = frozenset[str]().union(*self._forms_of.values())
        self._forms = tuple(sorted(forms, key=len, reverse=True))

    def stands_in(self, text: str) -> bool:
        """Tell whether one of these values stands in a text."""
        return any(form in text for form in self._forms)

    def find(self, text: str, at: int, *, whole: bool) -> Found:
        """Find these values, at each place the longest that stands there."""
        forms = self._forms
        there = [form for form in forms if text.find(form, at) >= 0]
        hold = len(text) if whole else _hold(forms, text, at)
        spans: list[Span] = []
        if there:
            regex = re.compile("|".join(map(re.escape, there)))
            while (found := regex.search(text, at)) and found.start() < hold:
                spans.append(Span(*found.span()))
                at = found.end()
                if at > hold:
                    hold = _hold(forms, text, at)
        return Found(spans, hold, hold)


def _hold(forms: Iterable[str], text: str, at: int) -> int:
    """Return the first place from which on the text's end is a beginning of one of these, or its end."""
    hold = len(text)
    for form in forms:
        start = max(at, len(text) - len(form) + 1)
        while (start := text.find(form[0], start, hold)) >= 0:
            if form.startswith(text[start:]):
                hold = start
                break
            start += 1
    return hold


class Likely:
    """What looks like a secret."""

    def __init__(self) -> None:
        self._until: re.Pattern[str] | None = None

    def find(self, text: str, at: int, *, whole: bool) -> Found:
        """Find what looks like a secret; in one that has no end yet, all that comes belongs to it."""
        spans: list[Span] = []
        hold = -1
        while True:
            if self._until is not None:
                end = self._until.search(text, at)
                if end is None:
                    sure = len(text) if whole else _within(text, at)
                    return Found([*spans, Span(at, sure)], sure, max(at, sure - END_MAX))
                spans.append(Span(at, end.end()))
                at, self._until = end.end(), None
            if hold < at:
                hold = len(text) if whole else _begun(text, at)
            found = _opening(text, at, hold)
            if found is None:
                return Found(spans, hold, hold)
            name = str(found.lastgroup)
            spans.append(Span(found.start(f"from_{name}"), found.end()))
            at, self._until = found.end(), PATTERNS[int(name[1:])].until


def _within(text: str, at: int) -> int:
    """Return up to where a text that has not come to the end of a secret is that secret; an end may have two chars."""
    return max(at, len(text) - 1) if text.endswith(("\\", '"')) else len(text)


def _opening(text: str, at: int, end: int) -> re.Match[str] | None:
    """Return the first opening that begins before `end`."""
    while (sight := SIGHT.search(text, at)) and (at := sight.start()) < end:
        if found := OPENINGS[text[at]].match(text, at):
            return found
        at += 1
    return None


def _begun(text: str, at: int) -> int:
    found = BEGUN.search(text, max(at, len(text) - OPENING_MAX))
    return len(text) if found is None else found.start()


@dataclass(slots=True)
class _Place:
    """How far a finder has come in what a stream holds."""

    finder: Finder
    at: int = 0


class Stream:
    """Scrubs a text that comes in pieces: all that it returns together is what the whole text becomes.

    It holds back what may turn out to be a part of a secret, which is never longer than the longest known value or the
    longest opening of a pattern. Of a secret that has no end yet nothing is held: it is dropped as it comes.
    """

    def __init__(self, finders: Iterable[Finder]) -> None:
        self._places = [_Place(finder) for finder in finders]
        self._text = ""
        self._given = 0
        self._covered: list[Span] = []
        self._within = False

    @property
    def held(self) -> str:
        """What is held back."""
        return self._text[self._given :]

    def feed(self, piece: str) -> str:
        """Take a piece in and return what may go out."""
        return self._grow(piece, whole=False)

    def end(self) -> str:
        """Return what was held back; nothing may follow."""
        return self._grow("", whole=True)

    def cut(self) -> str:
        """Return what was held back where a text was cut off: as a secret, if enough of one stands there."""
        if len(self.held) < VALUE_CHARS_MIN:
            return self.end()
        return "" if self._within else MARKER

    def whole(self, text: str) -> str:
        """Return what a text becomes to which nothing was before and nothing follows."""
        return self._grow(text, whole=True)

    def _grow(self, piece: str, *, whole: bool) -> str:
        if not self._places:
            return piece
        self._text += piece
        sure = len(self._text)
        for place in self._places:
            found = place.finder.find(self._text, place.at, whole=whole)
            self._covered += found.spans
            sure, place.at = min(sure, found.sure), found.at
        sure = max(sure, self._given)
        self._covered.sort()
        for start, end in self._covered:
            # Whatever one finder may still make of it, it is covered.
            sure = end if start <= sure < end else sure
        given = self._release(sure)
        self._trim()
        return given

    def _release(self, until: int) -> str:
        """Return what stands before this place and was not given yet; one marker for each part that is covered."""
        out: list[str] = []
        for start, end in self._covered:
            start, end = max(start, self._given), min(end, until)
            if start >= end:
                continue
            if start > self._given:
                out.append(self._text[self._given : start])
                self._within = False
            if not self._within:
                out.append(MARKER)
                self._within = True
            self._given = end
        if self._given < until:
            out.append(self._text[self._given : until])
            self._given, self._within = until, False
        self._covered = [span for span in self._covered if span.end > until]
        return "".join(out)

    def _trim(self) -> None:
        """Forget what nobody looks at any more."""
        gone = min(self._given, *(place.at for place in self._places)) - LOOK_BEHIND
        if gone > 0:
            self._text = self._text[gone:]
            self._given -= gone
            self._covered = [Span(start - gone, end - gone) for start, end in self._covered]
            for place in self._places:
                place.at -= gone


class Scrubber:
    """Replaces secrets by a marker.

    Args:
        *known: values that are secrets; the scrubber goes by what they hold when it is asked.
        likely: whether also what looks like a secret is one.
    """

    def __init__(self, *known: Known, likely: bool = True) -> None:
        self._known = known
        self._likely = likely

    def stream(self) -> Stream:
        """Return what scrubs a text that comes in pieces."""
        return Stream([*self._known, *([Likely()] if self._likely else [])])

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        if not self.busy:
            return text
        return self.stream().whole(text)

    def cut(self, text: str) -> str:
        """Return a text without its secrets that was cut off somewhere, maybe within one."""
        stream = self.stream()
        return stream.feed(text) + stream.cut()

    def value(self, value: Any) -> Any:
        """Return a JSON-like value without the secrets in its texts and keys; the same object if there are none.

        What stands under a key that names a secret is one. What is not JSON-like stays as it is.
        """
        return self._value(value) if self.busy else value

    @property
    def busy(self) -> bool:
        """Whether there is anything to look for."""
        return self._likely or any(self._known)

    def names(self, key: Any) -> bool:
        """Tell whether what stands under a key is a secret."""
        return self._likely and isinstance(key, str) and NAMED.fullmatch(key) is not None

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            made = {self._key(key): self.under(key, item) for key, item in value.items()}
            return value if made.keys() == value.keys() and _same(made.values(), value.values()) else made
        if isinstance(value, list | tuple):
            items = [self._value(item) for item in value]
            return value if _same(items, value) else items
        return self._number(value) if isinstance(value, int | float) else value

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) else key

    def under(self, key: Any, item: Any) -> Any:
        """Return a JSON-like value without its secrets, which stands under a key."""
        return self.value(self.named(item) if self.names(key) else item)

    def named(self, item: Any) -> Any:
        """Return what stands under a key that names a secret. Short numbers are none; an object has keys of its own."""
        match item:
            case bool():
                return item
            case str():
                return MARKER if item else item
            case int() | float():
                return MARKER if len(_written(item)) >= VALUE_CHARS_MIN else item
            case list() | tuple():
                items = [self.named(each) for each in item]
                return item if _same(items, item) else items
        return item

    def _number(self, value: int | float) -> Any:
        """Return a number, unless a known secret is written like it; numbers of ours only look like one."""
        if not self._likely or isinstance(value, bool):
            return value
        text = _written(value)
        return MARKER if any(known.stands_in(text) for known in self._known) else value


def _written(value: int | float) -> str:
    """Return a number as text; nothing if it has more digits than anybody writes."""
    return "" if isinstance(value, int) and value.bit_length() > DIGITS_BITS_MAX else str(value)


def _same(made: Iterable[Any], given: Iterable[Any]) -> bool:
    """Tell whether nothing was replaced."""
    return all(
        new is old or (isinstance(new, str) and new == old) for new, old in zip(made, given, strict=True)
    )
