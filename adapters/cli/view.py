"""Turns the frames of a thread into text for a person. Pure: frames in, pieces of text out.

Tokens are shown as they arrive. When some were lost, the rest of the response waits for its `model_called`
fact, which carries the whole text; what is missing is shown then: no hole, and nothing twice.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from threadhold.adapters.cli.deciding import Asked
from threadhold.fanout.frame import Frame

Style = Literal["answer", "tool", "note", "error", "other"]
ARGS_CHARS_MAX: Final = 160
RESULT_CHARS_MAX: Final = 240


@dataclass(frozen=True, slots=True)
class Piece:
    """Text to print as it is, without a line end of its own."""

    text: str
    style: Style


class ChatView:
    """Follows one thread.

    `failed` tells how the last run ended; `open`, what the present one waits for, by id.
    """

    def __init__(self) -> None:
        self._runs = False
        self._sent = False
        self.failed = False
        self.open: dict[str, Asked] = {}
        self._said = ""
        self._resumed = False
        self._expected: Counter[str] = Counter()
        # Calls of the present run that were shown and then deferred: they are called again when it goes on.
        self._deferred: set[str] = set()
        self._open_line = False
        self._shown = ""
        # Of the response in progress, what came before the reader was there: shown only if it goes on.
        self._held = ""
        self._lost = False
        self._answered_seq = 0
        self._facts: dict[str, Callable[[Frame], list[Piece]]] = {
            "run_replayed": self._run_replayed,
            "message_accepted": self._message_accepted,
            "message_returned": self._message_returned,
            "run_started": self._run_started,
            "attempt_started": self._attempt_started,
            "attempt_closed": self._attempt_closed,
            "model_called": self._model_called,
            "tool_called": self._tool_called,
            "tool_returned": self._tool_returned,
            "request_opened": self._request_opened,
            "request_answered": self._request_answered,
            "paused": self._paused,
            "run_ended": self._run_ended,
        }

    @property
    def busy(self) -> bool:
        """Whether a run is in progress, as far as the frames say, or one is to be expected."""
        return self._runs or self._sent

    @busy.setter
    def busy(self, runs: bool) -> None:
        self._runs, self._sent = runs, False

    def expect(self, content: str) -> None:
        """Do not show this message when it comes back: the reader has typed it. The thread is busy now."""
        self._expected[content] += 1
        self._sent = True

    def forget(self, content: str) -> None:
        """Take back an `expect`: the message was refused. A run that is in progress goes on."""
        self._expected[content] -= 1
        self._sent = False

    def feed(self, frame: Frame) -> list[Piece]:
        """Return what a frame adds to the text."""
        match frame.kind:
            case "event":
                return self._event(frame)
            case "fact":
                handler = self._facts.get(str(frame.data.get("fact")))
                return handler(frame) if handler else []
            case "gap":
                self._lost = True
            case "attempt":
                self._begin_anew()
                return self.close()
            case "head" | "end":
                self.busy = frame.data.get("state", "busy" if self.busy else "idle") == "busy"
        return []

    def overhear(self, frame: Frame) -> None:
        """Take in what came before that which is shown: if it is a part of an answer that goes on, it is shown then."""
        self.feed(frame)
        self._held, self._shown, self._open_line = self._held + self._shown, "", False

    def _begin_anew(self) -> None:
        self._shown, self._held, self._lost = "", "", False

    def _event(self, frame: Frame) -> list[Piece]:
        # An older seq than the response's own fact: it came late, and the fact has shown its text already.
        if frame.seq < self._answered_seq:
            return []
        match frame.data:
            case {"event_kind": "part_start", "index": index, "part": {"part_kind": kind} as part}:
                closing = self._begin_response() if index == 0 else []
                return closing + (self._text(str(part.get("content") or "")) if kind == "text" else [])
            case {
                "event_kind": "part_delta",
                "delta": {"part_delta_kind": "text", "content_delta": str(text)},
            }:
                return self._text(text)
        return []

    def _begin_response(self) -> list[Piece]:
        """A first part starts a response; if one was in progress, the model was asked again."""
        if self._lost and self._shown:
            return []
        self._begin_anew()
        return self.close()

    def _text(self, text: str) -> list[Piece]:
        if self._lost or not text:
            return []
        text, self._held = self._held + text, ""
        self._shown += text
        self._open_line = not text.endswith("\n")
        return [Piece(text, "answer")]

    def _model_called(self, frame: Frame) -> list[Piece]:
        text, shown = str(frame.data.get("text") or ""), self._shown
        self._begin_anew()
        self._answered_seq = frame.seq
        if text.startswith(shown):
            pieces = self._text(text[len(shown) :])
        elif text.endswith(shown):
            pieces = []  # The watch began in the middle; the reader saw the rest of it.
        else:
            pieces = self.close() + self._text(text)
        self._shown = ""
        return pieces + self.close()

    def _message_accepted(self, frame: Frame) -> list[Piece]:
        self.busy = True
        content = str(frame.data.get("content", ""))
        if self._expected[content] > 0:
            self._expected[content] -= 1
            self._said = content
            return []
        return self._line(f"{frame.data.get('by', 'somebody')}: {content}", "other")

    def _message_returned(self, frame: Frame) -> list[Piece]:
        reason = frame.data.get("reason") or "the run was stopped"
        return self._line(f"a message was not read ({reason}); send it again if it still matters", "note")

    def _run_replayed(self, frame: Frame) -> list[Piece]:
        self.busy = True
        data = frame.data
        return self._line(
            f"({data.get('by')} runs {data.get('origin')} again, from {data.get('checkpoint')})", "note"
        )

    def _run_started(self, frame: Frame) -> list[Piece]:
        self.busy, self.failed = True, False
        self._deferred.clear()
        return []

    def _attempt_started(self, frame: Frame) -> list[Piece]:
        # A run that was paused goes on as if nothing had been; who answered has seen that it does.
        self.busy, resumed, self._resumed = True, self._resumed, False
        return [] if resumed else self._line("(another worker carries on)", "note")

    def _attempt_closed(self, frame: Frame) -> list[Piece]:
        """Take text back that was in progress when the run was handed over: it comes anew."""
        if frame.data.get("text") != "withdrawn":
            return []
        shown, self._answered_seq = self._shown, frame.seq
        self._begin_anew()
        return self._line("(its worker left; what it was saying comes anew)", "note") if shown else []

    def _tool_called(self, frame: Frame) -> list[Piece]:
        if str(frame.data.get("call_id")) in self._deferred:
            return []
        text = call_text(str(frame.data.get("tool")), frame.data.get("args"))
        return self._line(f"-> {text}", "tool")

    def _tool_returned(self, frame: Frame) -> list[Piece]:
        outcome, tool = frame.data.get("outcome", "ok"), frame.data.get("tool")
        if outcome == "deferred":
            self._deferred.add(str(frame.data.get("call_id")))
            return []  # What it asks for follows.
        if outcome == "ok":
            return self._line(f"<- {short(frame.data.get('result'), RESULT_CHARS_MAX)}", "tool")
        words = {"retry": "refused", "denied": "was denied", "unknown": "has an unknown outcome"}
        said = short(frame.data.get("error"), RESULT_CHARS_MAX)
        return self._line(f"<- {tool} {words.get(str(outcome), outcome)}: {said}", "tool")

    def _request_opened(self, frame: Frame) -> list[Piece]:
        data = frame.data
        args = data.get("args")
        asked = Asked(
            id=str(data.get("request")),
            kind=str(data.get("kind")),
            tool=str(data.get("tool")),
            args=args if isinstance(args, dict) else {},
            args_hash=data.get("args_hash"),
        )
        self.open[asked.id] = asked
        words = {"approval": "asks to allow", "question": "asks"}
        return self._line(f"{words.get(asked.kind, 'waits for')}: {call_text(asked.tool, args)}", "other")

    def _request_answered(self, frame: Frame) -> list[Piece]:
        data = frame.data
        asked = self.open.pop(str(data.get("request")), None)
        self.busy, self._resumed = not self.open, True
        tool = data.get("tool") or (asked.tool if asked else "it")
        decision, by = str(data.get("decision")), data.get("by")
        words = {
            "approve": "allowed",
            "edit": "allowed, with changes,",
            "reject": "rejected",
            "reply": "answered",
        }
        if decision not in words:
            return self._line(f"({tool} is not asked for any more)", "note")
        said = data.get("args") or data.get("value") or data.get("reason")
        told = "" if said in (None, self._said) else f": {short(said, ARGS_CHARS_MAX)}"
        more = f" ({len(self.open)} more to answer)" if self.open else ""
        return self._line(f"({by} {words[decision]} {tool}{told}){more}", "note")

    def _paused(self, frame: Frame) -> list[Piece]:
        self.busy = False
        count = frame.data.get("requests", 1)
        what = "an answer" if count == 1 else f"{count} answers"
        return self._line(f"(paused: the run waits for {what})", "note")

    def _run_ended(self, frame: Frame) -> list[Piece]:
        data, self.busy, self._resumed = frame.data, False, False
        self._begin_anew()
        self.open.clear()
        status, reason = data.get("status"), data.get("reason")
        self.failed = status == "failed"
        if status == "completed":
            return self.close()
        if status == "stopped":
            return self._line("(stopped)" if reason in (None, "person") else f"(stopped: {reason})", "note")
        error = data.get("error") or {}
        said = error.get("message") or error.get("type") or "no details"
        return self._line(f"the run failed ({reason or status}): {said}", "error")

    def _line(self, text: str, style: Style) -> list[Piece]:
        return [*self.close(), Piece(f"{text}\n", style)]

    def close(self) -> list[Piece]:
        """Return what ends the line that is open, if one is."""
        if not self._open_line:
            return []
        self._open_line = False
        return [Piece("\n", "answer")]


def call_text(tool: str, args: Any) -> str:
    """Return a call the way it would be written in code, on one line."""
    return f"{tool}({_arguments(args)})"


def _arguments(args: Any) -> str:
    """Return a call's arguments the way they would be written in code."""
    if isinstance(args, str):
        try:
            args = json.loads(args)
        except ValueError:
            return short(args, ARGS_CHARS_MAX)
    if isinstance(args, dict):
        text = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items())
        return short(text, ARGS_CHARS_MAX)
    return "" if args is None else short(args, ARGS_CHARS_MAX)


def short(value: Any, limit: int) -> str:
    """Return a value on one line, cut at `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
