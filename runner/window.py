"""How much of a thread's history the model is shown at a request. Values in, values out; what is stored stays whole.

What is left out goes from the front, in whole turns: from what somebody said to before what somebody said next. Turns
go several at a time, so that the same beginning is shown for many requests, as a provider's cache wants it. The
present run is shown whole unless it alone is too long: then its oldest steps go, each an answer of the model with the
results of its calls. At last the longest texts are cut.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    UserPromptPart,
)

from threadhold.runner.shortening import STANDING, chars_of, cut_text, shortened

MESSAGES: Final = 400
CHARS: Final = 400_000
MESSAGES_MIN: Final = 4
CHARS_MIN: Final = 1_000
BLOCKS: Final = 4
"""What goes at a time is at least this part of what may be shown, and so may a summary be long."""
SUMMARY: Final = "[A summary of what was said before, which is not shown any more]\n"
SUMMARIES_MAX: Final = 1_000
# They belong to an answer that is not shown any more.
_ANSWERS: Final = frozenset({"tool-return", "retry-prompt", "retry-feedback"})

Compact = Callable[[list[ModelMessage]], str | Awaitable[str]]
"""Tells in short what messages have said."""


@dataclass(slots=True)
class Summaries:
    """What was last said in short of each thread, so that it is asked for once and not at every run."""

    _of: OrderedDict[str, tuple[str, str]] = field(default_factory=OrderedDict)

    def get(self, thread: str, digest: str) -> str | None:
        """Return what was said of exactly these messages."""
        known, text = self._of.get(thread, ("", ""))
        return text if known == digest else None

    def keep(self, thread: str, digest: str, text: str) -> None:
        """Keep it in place of what was said of the thread before; of the threads, the newest ones."""
        self._of[thread] = (digest, text)
        self._of.move_to_end(thread)
        while len(self._of) > SUMMARIES_MAX:
            self._of.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How much of a thread's history an agent's model is shown.

    Args:
        messages: how many at most; requests that follow one another count as one.
        chars: how many characters they have at most, instructions not counted.
        compact: tells in short what the messages said that are left out, to be shown in their place; may be async. It
            is called once for the same messages, not at each request; a process keeps what it said of its threads.

    Raises:
        ValueError: if there would be no room for a turn.
    """

    messages: int = MESSAGES
    chars: int = CHARS
    compact: Compact | None = None
    summaries: Summaries = field(default_factory=Summaries, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.messages < MESSAGES_MIN or self.chars < CHARS_MIN:
            raise ValueError(f"a window has at least {MESSAGES_MIN} messages and {CHARS_MIN} characters")

    @property
    def room(self) -> int:
        """How many characters are for messages when some are left out."""
        return self.chars if self.compact is None else self.chars - self.chars // BLOCKS


@dataclass(frozen=True, slots=True)
class View:
    """What is shown, what is not, how many characters are shown, and how many texts were cut."""

    shown: list[ModelMessage]
    dropped: list[ModelMessage]
    chars: int
    cut: int = 0


class _Measured:
    """Messages with what they count, from any place on."""

    def __init__(self, messages: Sequence[ModelMessage], chars: Sequence[int] | None = None) -> None:
        self.messages = messages
        sizes = [chars_of(message) for message in messages] if chars is None else chars
        self._chars = list(accumulate(sizes, initial=0))
        self._count = list(accumulate(map(self._counts, range(len(messages))), initial=0))

    def _counts(self, i: int) -> bool:
        """Tell whether a message is one of its own, as providers see it."""
        neighbours = self.messages[max(0, i - 1) : i + 1]
        return len(neighbours) < 2 or not all(isinstance(each, ModelRequest) for each in neighbours)

    def between(self, begin: int, end: int) -> tuple[int, int]:
        """Return how many messages stand there, and how many characters they have."""
        own = begin < end and not self._counts(begin)
        return self._count[end] - self._count[begin] + own, self._chars[end] - self._chars[begin]

    def behind(self, begin: int) -> tuple[int, int]:
        """Return the same of all from a place on."""
        return self.between(begin, len(self.messages))

    def places(self, places: Sequence[int], begin: int, window: Window) -> Iterator[int]:
        """Yield where one may begin to show: behind large blocks first, then at every place behind the last of them."""
        for place in places:
            messages, chars = self.between(begin, place)
            if messages >= window.messages // BLOCKS or chars >= window.chars // BLOCKS:
                yield place
                begin = place
        yield from (place for place in places if place > begin)


def view_of(
    messages: Sequence[ModelMessage], window: Window, *, run: str, chars: Sequence[int] | None = None
) -> View:
    """Return what the model is shown of a history that ends in what it is asked.

    Args:
        messages: all of them, each call with its result right behind it.
        window: how much may be shown.
        run: the id of the present run.
        chars: what each message counts, if it is known.
    """
    measured = _Measured(messages, chars)
    count, size = measured.behind(0)
    if count <= window.messages and size <= window.chars:
        return View(list(messages), [], size)
    begin = _begin(measured, _own(messages, run), window)
    shown, dropped = _from(messages, begin)
    if not _fits(window, *measured.behind(begin)):
        shown, gone = _without_steps(shown, window)
        dropped += gone
    shown, cut = shortened(shown, chars=window.room if dropped else window.chars)
    return View(shown, dropped, sum(map(chars_of, shown)), cut)


def _fits(window: Window, count: int, size: int) -> bool:
    return count <= window.messages and size <= window.room


def _own(messages: Sequence[ModelMessage], run: str) -> int:
    """Return where the present run begins: at what it was asked first; 0 if nobody has asked anything."""
    responses = [i for i, message in enumerate(messages) if isinstance(message, ModelResponse)]
    first = next((i for i in responses if (messages[i].run_id or "").startswith(f"{run}:")), len(messages))
    behind = max((i for i in responses if i < first), default=-1)
    asked = [i for i in range(first) if _asks(messages[i])]
    return next((i for i in asked if i > behind), asked[-1] if asked else 0)


def _asks(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and any(
        isinstance(part, UserPromptPart) for part in message.parts
    )


def _begin(measured: _Measured, own: int, window: Window) -> int:
    """Return where to begin, so that the rest fits if the present run does."""
    begin = own
    for begin in measured.places([i for i in range(1, own + 1) if _asks(measured.messages[i])], 0, window):
        if _fits(window, *measured.behind(begin)):
            break
    return begin


def _from(messages: Sequence[ModelMessage], begin: int) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """Return the messages from a request on, and those before it, to which the results at its front belong."""
    if not begin:
        return list(messages), []
    first = messages[begin]
    assert isinstance(first, ModelRequest)
    answers = [part for part in first.parts if part.part_kind in _ANSWERS]
    kept = replace(first, parts=[*_standing(messages[:begin]), *_apart(first)])
    dropped = [*messages[:begin], *([ModelRequest(parts=answers)] if answers else [])]
    return [kept, *messages[begin + 1 :]], dropped


def _standing(messages: Sequence[ModelMessage]) -> Iterator[ModelRequestPart]:
    """Yield what stays of messages that go: what the system says at the very front, and how the agent stands."""
    for place, message in enumerate(messages):
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if part.part_kind in STANDING or (place == 0 and isinstance(part, SystemPromptPart)):
                    yield part


def _without_steps(
    messages: Sequence[ModelMessage], window: Window
) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """Leave out the oldest steps of a run that is too long, but nothing that people said, nor its newest step."""
    steps = [i for i, message in enumerate(messages) if isinstance(message, ModelResponse)]
    if len(steps) < 2:
        return list(messages), []
    measured = _Measured(messages)
    head, said = list(messages[: steps[0]]), list[ModelMessage]()
    begin = steps[0]
    for begin in measured.places(steps[1:], steps[0], window):
        said = [*head, *_said(messages[steps[0] : begin])]
        count, size = measured.behind(begin)
        if _fits(window, count + bool(said), size + sum(map(chars_of, said))):
            break
    return [*said, *messages[begin:]], list(_unsaid(messages[steps[0] : begin]))


def _said(messages: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    """Yield what people said in between, and how the agent stands."""
    for message in messages:
        if isinstance(message, ModelRequest) and (kept := list(_apart(message))):
            yield replace(message, parts=kept)


def _apart(request: ModelRequest) -> Iterator[ModelRequestPart]:
    """Yield the parts of a request that belong to no answer before it."""
    yield from (part for part in request.parts if part.part_kind not in _ANSWERS)


def _unsaid(messages: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    """Yield the rest: answers of the model, and the results of their calls."""
    for message in messages:
        if isinstance(message, ModelResponse):
            yield message
        elif answers := [part for part in message.parts if part.part_kind in _ANSWERS]:
            yield replace(message, parts=answers)


def with_summary(view: View, text: str, window: Window) -> View:
    """Return a view that begins with what was said in short of the messages that are left out."""
    first = view.shown[0]
    assert isinstance(first, ModelRequest)
    told = cut_text(SUMMARY + text.strip(), window.chars // BLOCKS)
    rest = [part for part in first.parts if not _stands(part)]
    parts = [*(part for part in first.parts if _stands(part)), UserPromptPart(told), *rest]
    return replace(view, shown=[replace(first, parts=parts), *view.shown[1:]], chars=view.chars + len(told))


def _stands(part: ModelRequestPart) -> bool:
    return isinstance(part, SystemPromptPart) or part.part_kind in STANDING


def digest_of(messages: Sequence[ModelMessage]) -> str:
    """Return what tells these messages from any others."""
    return hashlib.sha256(ModelMessagesTypeAdapter.dump_json(list(messages))).hexdigest()
