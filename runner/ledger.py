"""What became of each tool call, as far as the log of facts tells. Values in, values out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from threadhold.runner.decisions import RULE_KEY, DecisionKind, RequestKind

Outcome = Literal["ok", "retry", "failed", "denied"]

_OUTCOMES: Final[dict[str, Outcome]] = {"ok": "ok", "retry": "retry", "failed": "failed", "denied": "denied"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the request that a call waits for was answered.

    Args:
        call: the id of the call.
        request: what was asked for.
        decision: what was decided.
        args: the arguments to use instead, of an edit.
        value: what was replied.
        reason: why it was rejected.
        rule: the rule of a policy that had asked.
    """

    call: str
    request: RequestKind
    decision: DecisionKind
    args: dict[str, Any] | None = None
    value: Any = None
    reason: str = ""
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The model asked for it, and nothing has happened; `rule` is that of a policy which asks people about it."""

    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """It was started and nobody saw its end, or nothing is recorded about it: it may or may not have happened."""


@dataclass(frozen=True, slots=True)
class Finished:
    """It ended, with what it returned or with the text of its error."""

    outcome: Outcome
    result: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """It waits to be carried out as it was decided."""

    answer: Answer


Fate = NeverStarted | Unknown | Finished | Answered


@dataclass(frozen=True, slots=True)
class Ledger:
    """The fates of calls by their id, oldest first: a model may use an id again in a later response."""

    fates: Mapping[str, tuple[Fate, ...]] = field(default_factory=dict)

    def fate(self, call: str, *, back: int = 0) -> Fate:
        """Return what became of a call.

        Args:
            call: its id.
            back: how many later calls have the same id.
        """
        fates = self.fates.get(call, ())
        return fates[-1 - back] if back < len(fates) else Unknown()


EMPTY: Final = Ledger()


def ledger_of(facts: Iterable[Mapping[str, Any]], answers: Iterable[Answer] = ()) -> Ledger:
    """Return what facts tell about calls.

    Args:
        facts: a thread's facts in their order, each with its kind as `fact`: `model_called`, `tool_called`,
            `tool_returned`, `request_opened` and `request_answered`; others are passed over.
        answers: more of them, if their facts are not at hand; the last one for a call counts.
    """
    fates: dict[str, list[Fate]] = {}
    for fact in facts:
        _take(fates, fact)
    for answer in answers:
        _take_answer(fates, answer)
    return Ledger({call: tuple(known) for call, known in fates.items()})


def _take(fates: dict[str, list[Fate]], fact: Mapping[str, Any]) -> None:
    match fact["fact"]:
        case "model_called" if fact.get("state", "complete") != "interrupted":
            for call in fact["calls"]:
                fates.setdefault(call["id"], []).append(NeverStarted())
        case "tool_called":
            _set(fates, fact["call_id"], Unknown())
        case "tool_returned":
            _set(fates, fact["call_id"], _returned(fact))
        case "request_opened":
            # Whatever the tool did before it asked, it has not done its work yet.
            _set(fates, fact["call_id"], NeverStarted((fact.get("metadata") or {}).get(RULE_KEY)))
        case "request_answered" if fact["decision"] != "cancelled":
            _take_answer(fates, _answer(fact))
        case _:
            pass


def _take_answer(fates: dict[str, list[Fate]], answer: Answer) -> None:
    known = fates.setdefault(answer.call, [NeverStarted()])
    # A call that was started since, or has ended, is never carried out again.
    match known[-1]:
        case NeverStarted(rule=rule):
            known[-1] = Answered(replace(answer, rule=rule))
        case Answered(Answer(rule=rule)):
            known[-1] = Answered(replace(answer, rule=rule))


def _answer(fact: Mapping[str, Any]) -> Answer:
    return Answer(
        call=fact["call_id"],
        request=fact["kind"],
        decision=fact["decision"],
        args=fact.get("args"),
        value=fact.get("value"),
        reason=fact.get("reason") or "",
    )


def _set(fates: dict[str, list[Fate]], call: str, fate: Fate) -> None:
    known = fates.setdefault(call, [fate])
    known[-1] = fate


def _returned(fact: Mapping[str, Any]) -> Fate:
    if fact["outcome"] == "deferred":
        return NeverStarted()
    outcome = _OUTCOMES.get(fact["outcome"])
    if outcome is None:
        return Unknown()
    return Finished(outcome, fact.get("result") if outcome == "ok" else fact.get("error", ""))
