"""Turns the frames of a thread into what a tool tells: text, what happened, where it stands. Pure and bounded."""

import json
from typing import Any, Final

from threadhold.adapters.mcp.schemas import Event, Status
from threadhold.fanout.cursor import InvalidCursor, parse_cursor
from threadhold.fanout.frame import Frame

TEXT_CHARS_MAX: Final = 32 * 1024
EVENTS_MAX: Final = 100
EVENTS_CHARS_MAX: Final = 64 * 1024
FINAL: Final = ("completed", "stopped", "failed")
# The text of these is in `text` already.
_SAID: Final = frozenset({"model_called"})


class View:
    """Follows one thread from a cursor.

    Args:
        thread: which.
        cursor: where to begin; None for the start of the current or last run.
        run: only this run counts, and its end ends the view; None for whatever runs there.
        message: what was sent. Without a run, only the one that takes it counts; until one does, nothing.
        with_events: keep what happened; a full view has no room for more.

    `frames` counts what was taken in, so that whoever shows it knows that there is news.
    """

    def __init__(
        self,
        thread: str,
        *,
        cursor: str | None,
        run: str | None = None,
        message: str | None = None,
        with_events: bool = False,
    ) -> None:
        self.thread = thread
        self.run = run
        self.cursor = cursor
        self.status: Status | None = None
        self.output: Any = None
        self.reason: str | None = None
        self.error: dict[str, Any] | None = None
        self.events: list[Event] = []
        self.frames = 0
        self.note: str | None = None
        self._own_run = run
        self._message = message
        # Live frames from before this fact are old news: the text in them came, or comes, with a fact.
        self._since = _seq(cursor)
        self._with_events = with_events
        self._rests = False
        self._ended: Status | None = None
        self._current = False
        self._said: list[str] = []
        self._now = ""
        self._began = False
        self._lost = False
        self._events_chars = 0

    @property
    def is_waiting(self) -> bool:
        """Whether no run has taken the message yet."""
        return self._message is not None and self._own_run is None

    @property
    def is_current(self) -> bool:
        """Whether everything was seen that had happened when the view began."""
        return self._current or self.settled

    @property
    def settled(self) -> bool:
        """Whether waiting any longer would show nothing, or there is no room for more."""
        full = len(self.events) >= EVENTS_MAX or self._events_chars >= EVENTS_CHARS_MAX
        return full or self._rests or (self._own_run is not None and self.status in FINAL)

    @property
    def text(self) -> str:
        """What the agent has said since the view began; of much text, the end."""
        text = "\n\n".join(part for part in (*self._said, self._now) if part)
        return text if len(text) <= TEXT_CHARS_MAX else "…" + text[1 - TEXT_CHARS_MAX :]

    def feed(self, frame: Frame, cursor: str) -> None:
        """Take in a frame."""
        self.cursor = cursor
        self._look_for_message(frame)
        if frame.run is not None and (self.is_waiting or self._own_run not in (None, frame.run)):
            return
        self.frames += 1
        match frame.kind:
            case "event":
                if frame.seq >= self._since:
                    self._event(frame.data)
            case "fact":
                self._fact(frame)
            case "attempt":
                self._now, self._began, self._lost = "", False, False
            case "gap":
                self._lost = True
            case "head":
                self._current = True
            case "end":
                self._rest(str(frame.data.get("state")))

    def _look_for_message(self, frame: Frame) -> None:
        if self._message is None or frame.data.get("message") != self._message:
            return
        match frame.data.get("fact"):
            case "message_delivered":
                self._own_run, self._message = self._own_run or frame.run, None
            case "message_returned":
                self.note = f"the message was not read ({frame.data.get('reason') or 'its run was stopped'})"
                self._rests = self._own_run is None
                self._message = None

    def _rest(self, state: str) -> None:
        """The thread rests. Where a run's end came before the cursor, only this is known of it."""
        self._rests = True
        if state == "paused":
            self.status = "paused"
        elif self.status not in FINAL:
            self.status = self._ended or "idle"

    def _event(self, data: dict[str, Any]) -> None:
        match data:
            case {"event_kind": "part_start", "index": index, "part": {"part_kind": kind} as part}:
                if index == 0:
                    self._now, self._began, self._lost = "", True, False
                if kind == "text":
                    self._hear(str(part.get("content") or ""))
            case {
                "event_kind": "part_delta",
                "delta": {"part_delta_kind": "text", "content_delta": str(text)},
            }:
                self._hear(text)

    def _hear(self, text: str) -> None:
        # After a hole the rest would read as if nothing were missing; the whole text follows as a fact.
        if not self._lost:
            self._now = (self._now + text)[-TEXT_CHARS_MAX:]

    def _fact(self, frame: Frame) -> None:
        kind, data = str(frame.data.get("fact")), frame.data
        self.run = self._own_run or frame.run or self.run
        match kind:
            case "model_called":
                self._say(str(data.get("text") or ""))
                self._since = frame.seq
            case "attempt_closed" if data.get("text") == "withdrawn":
                self._now, self._since = "", frame.seq
            case "run_started" | "attempt_started":
                self.status, self._ended = "running", None
            case "paused":
                self.status = "paused"
            case "run_ended":
                self._end(data)
        self._note(kind, frame)

    def _say(self, text: str) -> None:
        """A response is complete. Where the view began in the middle of it, what came before stays out."""
        told = self._now if self._now and not self._began and text.endswith(self._now) else text
        self._now, self._began, self._lost = "", False, False
        self._said.append(told[-TEXT_CHARS_MAX:])
        while sum(map(len, self._said)) > TEXT_CHARS_MAX and len(self._said) > 1:
            del self._said[0]

    def _end(self, data: dict[str, Any]) -> None:
        self._ended = data.get("status", "failed")
        self.output, self.reason, self.error = data.get("output"), data.get("reason"), data.get("error")
        # Whoever follows the thread may see another run begin at once.
        self.status = self._ended if self._own_run is not None else "running"

    def _note(self, kind: str, frame: Frame) -> None:
        """Keep a fact for those who ask what happened."""
        if kind in _SAID or not self._with_events:
            return
        data = {name: value for name, value in frame.data.items() if name not in ("fact", "live", "usage")}
        self._events_chars += len(json.dumps(data, default=str))
        self.events.append(Event(seq=frame.seq, fact=kind, run=frame.run, at=frame.at, data=data))


def _seq(cursor: str | None) -> int:
    try:
        return parse_cursor(cursor).seq if cursor else 0
    except InvalidCursor:
        return 0  # "start" and "head"; what is no cursor at all is refused where it is used
