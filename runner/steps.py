"""What a run did, answer by answer and call by call, as its facts tell. Values in, values out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from threadhold.runner.ledger import Outcome
from threadhold.runner.records import Fact

CallState = Literal["never_started", "waiting", "still_running", "finished", "unknown"]

CALL_FACTS: Final = ("tool_called", "tool_returned", "request_opened", "request_answered")
"""The kinds of facts that tell what became of a call, beside the answer that asked for it and the ends of attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of a model, with the ids of the calls that it asks for.

    `seq` is its place in the thread's log and `fence` that of the attempt it belongs to; `state` is "interrupted"
    where it was cut off. Costs are in dollars, as text, None where the price is not known.
    """

    seq: int
    fence: int
    model: str | None
    state: str
    text: str
    calls: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    latency_ms: float | None
    cost: str | None
    cost_total: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call that a model asked for, and what became of it.

    `seq` is the answer that asked for it. A call is `waiting` while its `request` is open, and `unknown` when it was
    under way as its attempt was closed: it may or may not have happened. The `args` of a model and the `result` of a
    tool are cut off where they are longer than 16,384 characters; what people gave instead has at most 65,536.
    """

    id: str
    tool: str
    args: Any
    seq: int
    state: CallState
    outcome: Outcome | None
    result: Any
    error: str | None
    request: str | None
    ms: float | None
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


def step_of(fact: Fact) -> Step:
    """Return the answer that a `model_called` tells of."""
    data = fact.data
    return Step(
        seq=fact.seq,
        fence=fact.fence,
        model=data.get("model"),
        state=data.get("state", "complete"),
        text=data.get("text") or "",
        calls=tuple(call["id"] for call in data["calls"]),
        input_tokens=data.get("input_tokens", 0),
        output_tokens=data.get("output_tokens", 0),
        latency_ms=data.get("latency_ms"),
        cost=data.get("cost"),
        cost_total=data.get("cost_total"),
        at=fact.at,
    )


def calls_of(facts: Iterable[Fact], *, answers: Sequence[int]) -> list[Call]:
    """Return the calls that some answers of a run ask for, in their order.

    Args:
        facts: those about the calls, in the log's order: the answers, `CALL_FACTS`, `attempt_closed`, and later answers
            that use an id again.
        answers: the `seq` of the answers.
    """
    known = _Calls()
    for fact in facts:
        known.take(fact)
    return [call for call in known.calls if call.seq in answers]


class _Calls:
    """Follows calls through the log; the newest of an id is the one that a fact is about."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._newest: dict[str, int] = {}
        self._asked: dict[str, str] = {}

    def take(self, fact: Fact) -> None:
        data = fact.data
        match fact.kind:
            case "model_called" if data.get("state") != "interrupted":
                for call in data["calls"]:
                    self._newest[call["id"]] = len(self.calls)
                    self.calls.append(_asked_for(call, fact))
            case "tool_called":
                self._change(data["call_id"], state="still_running", started_at=fact.at)
            case "tool_returned":
                self._change(data["call_id"], **_returned(fact))
            case "request_opened":
                self._asked[data["request"]] = data["call_id"]
                self._change(data["call_id"], state="waiting", request=data["request"])
            case "request_answered":
                # That a request is cancelled is told without the call.
                self._change(self._asked.get(data["request"], ""), **_answered(fact))
            case "attempt_closed":
                self._lose()
            case _:
                pass

    def _change(self, id: str, **changes: Any) -> None:
        place = self._newest.get(id)
        if place is not None:
            self.calls[place] = replace(self.calls[place], **changes)

    def _lose(self) -> None:
        for place, call in enumerate(self.calls):
            if call.state == "still_running":
                self.calls[place] = replace(call, state="unknown")


def _asked_for(call: dict[str, Any], fact: Fact) -> Call:
    return Call(
        id=call["id"],
        tool=call["tool"],
        args=call.get("args"),
        seq=fact.seq,
        state="never_started",
        outcome=None,
        result=None,
        error=None,
        request=None,
        ms=None,
        asked_at=fact.at,
        started_at=None,
        ended_at=None,
    )


def _returned(fact: Fact) -> dict[str, Any]:
    """Return what an end changes; what is deferred has not done its work."""
    data = fact.data
    if data["outcome"] == "deferred":
        return {"state": "never_started", "started_at": None}
    told = {name: data.get(name) for name in ("outcome", "result", "error", "ms")}
    return {"state": "finished", "ended_at": fact.at, **told}


def _answered(fact: Fact) -> dict[str, Any]:
    """Return what an answer changes: it may be the call's end, or let the call begin."""
    data = fact.data
    match data["decision"]:
        case "reply":
            return {"state": "finished", "outcome": "ok", "result": data.get("value"), "ended_at": fact.at}
        case "reject":
            return {
                "state": "finished",
                "outcome": "denied",
                "error": data.get("reason"),
                "ended_at": fact.at,
            }
        case "edit":
            return {"state": "never_started", "args": data.get("args")}
        case _:
            return {"state": "never_started"}
