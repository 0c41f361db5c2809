"""Shows one attempt's model as much of the history as its window holds, and says on the record what was left out."""

import inspect
from collections.abc import Awaitable, Callable, Sequence

import structlog
from pydantic_ai.messages import ModelMessage

from threadhold.runner.records import NewFact, Start
from threadhold.runner.shortening import chars_of
from threadhold.runner.window import Compact, View, Window, digest_of, view_of, with_summary

log = structlog.get_logger(__name__)


class Windowing:
    """Bounds what the model of one attempt is shown.

    Args:
        window: how much that may be.
        start: the run and its claim.
        note: records a fact; raises if the run may not go on.
    """

    def __init__(self, window: Window, *, start: Start, note: Callable[[NewFact], Awaitable[None]]) -> None:
        self._window = window
        self._start = start
        self._note = note
        self._sizes: list[tuple[ModelMessage, int]] = []
        self._told: tuple[int, bool] = (0, False)
        self._summary: str | None = None

    async def shown(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return what the model is shown of these messages; when something else is left out than before, record it."""
        view = view_of(messages, self._window, run=self._start.run, chars=self._measured(messages))
        told = (len(view.dropped), view.cut > 0)
        error = None
        if told[0] != self._told[0]:
            self._summary, error = await self._compacted(view.dropped)
        if self._summary is not None and view.dropped:
            view = with_summary(view, self._summary, self._window)
        if told != self._told:
            self._told = told
            await self._note(self._fact(view, error))
        return view.shown

    def _measured(self, messages: Sequence[ModelMessage]) -> list[int]:
        """Return what each message counts; those of the request before need not be looked at again."""
        known = self._sizes
        self._sizes = [
            known[place]
            if place < len(known) and known[place][0] is message
            else (message, chars_of(message))
            for place, message in enumerate(messages)
        ]
        return [size for _, size in self._sizes]

    async def _compacted(self, dropped: list[ModelMessage]) -> tuple[str | None, str | None]:
        """Return what the application says in short of messages, or the type of what it raised."""
        compact, thread = self._window.compact, self._start.thread
        if compact is None or not dropped:
            return None, None
        digest = digest_of(dropped)
        known = self._window.summaries.get(thread, digest)
        if known is not None:
            return known, None
        try:
            text = await _said(compact, dropped)
        except Exception as error:
            # What the messages say is nobody's business here, and the error may repeat it.
            log.warning("compact_failed", thread=thread, run=self._start.run, error=type(error).__name__)
            return None, type(error).__name__
        self._window.summaries.keep(thread, digest, text)
        return text, None

    def _fact(self, view: View, error: str | None) -> NewFact:
        data = {
            "shown": len(view.shown),
            "dropped": len(view.dropped),
            "chars": view.chars,
            "cut": view.cut,
            "compacted": bool(view.dropped) and self._summary is not None,
        }
        return NewFact(kind="history_windowed", data=data if error is None else data | {"error": error})


async def _said(compact: Compact, dropped: list[ModelMessage]) -> str:
    """Return what the application says of messages.

    Raises:
        TypeError: it is no text.
        ValueError: it is empty.
    """
    made = compact(list(dropped))
    text = await made if inspect.isawaitable(made) else made
    if not isinstance(text, str):
        raise TypeError("compact returns text")
    if not text.strip():
        raise ValueError("compact returned nothing")
    return text
