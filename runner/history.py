"""What the model has been shown and has said: raw in the store, made valid when it is loaded. Values in, values out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

from threadhold.runner.decisions import RULE_KEY
from threadhold.runner.ledger import (
    EMPTY,
    Answer,
    Answered,
    Fate,
    Finished,
    Ledger,
    NeverStarted,
    Outcome,
    Unknown,
)
from threadhold.runner.records import InboxMessage

# Under this key of a request's metadata stands the message of the inbox that it carries.
MESSAGE_KEY = "threadhold_message"

NOT_EXECUTED: Final = "Not executed: the run was interrupted before this call was started."
OUTCOME_UNKNOWN: Final = (
    "Outcome unknown: the run was interrupted while this call was under way. It may or may not have happened; "
    "do not repeat it without checking."
)
REJECTED: Final = "The call was rejected."
_OUTCOMES: Final[dict[Outcome, Any]] = {
    "ok": "success",
    "retry": "retried",
    "failed": "failed",
    "denied": "denied",
}


class HistoryUnsafe(Exception):
    """What is stored of the thread's history cannot be read; nothing was sent to a model."""


def request_of(message: InboxMessage) -> ModelRequest:
    """Return the model request that shows one message of the inbox."""
    return ModelRequest(
        parts=[UserPromptPart(message.content)],
        metadata={MESSAGE_KEY: {"id": message.id, "by": message.sender}},
    )


def dumped(messages: Sequence[ModelMessage]) -> list[Any]:
    """Return messages as JSON values, for the store.

    Raises:
        ValueError: if a tool returned something that is not JSON-like.
    """
    values: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return values


def loaded(values: Sequence[Any]) -> list[ModelMessage]:
    """Return messages from the store's JSON values.

    Raises:
        ValueError: if they are not messages of this library's version.
    """
    return ModelMessagesTypeAdapter.validate_python(list(values))


@dataclass(frozen=True, slots=True)
class Continuation:
    """A history to go on with, and what was decided about the calls of its last response that are still to be made."""

    messages: list[ModelMessage]
    results: DeferredToolResults | None = None


@dataclass(slots=True)
class _Call:
    """A call of the model, the part that answers it, and what is known of it otherwise."""

    part: ToolCallPart
    result: ToolReturnPart | None = None
    fate: Fate = field(default_factory=NeverStarted)

    @property
    def id(self) -> str:
        return self.part.tool_call_id


@dataclass(slots=True)
class _Turn:
    """A response with its calls, and the requests that follow it, without the results of calls."""

    response: ModelResponse | None = None
    calls: list[_Call] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)

    @property
    def cut_off(self) -> bool:
        """Whether the response was still being written; then none of its calls was ever made."""
        return self.response is not None and self.response.state == "interrupted"

    @property
    def followed(self) -> bool:
        """Whether anything belongs behind the response."""
        return bool(self.requests or (self.calls and not self.cut_off))


def open_calls(history: Sequence[ModelMessage]) -> list[str]:
    """Return the ids of the calls that have no result: those that a ledger is needed for."""
    calls = [call for turn in _turns(history) if not turn.cut_off for call in turn.calls]
    return sorted({call.id for call in calls if call.result is None})


def is_askable(history: Sequence[ModelMessage]) -> bool:
    """Tell whether a model can be asked over this history as it is: something was said to it, and no call is open."""
    last = _turns(history)[-1]
    answered = bool(last.calls) and all(call.result is not None for call in last.calls)
    return bool(last.requests) or (answered and not last.cut_off)


def continuable(
    history: Sequence[ModelMessage], ledger: Ledger = EMPTY, *, resuming: bool = False
) -> Continuation:
    """Return a history that every provider accepts, wherever the last run was cut off.

    Each call without a result is closed with what is known of it, right behind its response, so that none is ever
    executed again by accident. Results without a call and messages that say nothing are left out.

    Args:
        history: as it is stored.
        ledger: what is known of calls that have no result.
        resuming: whether the same run goes on, rather than a new one after it. Then an unfinished answer at the end is
            left out, since the model gives it anew, and calls that wait to be carried out as decided stay open.
    """
    turns = _turns(history)
    _tell_fates(turns, ledger)
    turns = _without_withdrawn(turns, resuming=resuming)
    results = _decided(turns[-1]) if resuming else None
    _tell_apart(turns)
    for turn in turns:
        for call in turn.calls:
            waits = results is not None and turn is turns[-1] and isinstance(call.fate, Answered)
            if call.result is None and not waits:
                call.result = _closing(call, turn)
    messages = [message for turn in turns for message in _messages(turn)]
    # Requests that follow one another become one, as the agent would make of them anyway.
    return Continuation(repair_messages(messages, repair_last_response=False), results)


def _turns(history: Sequence[ModelMessage]) -> list[_Turn]:
    """Return the history as turns, each call with its result; what belongs to no call is left out."""
    turns = [_Turn()]
    for message in history:
        if isinstance(message, ModelResponse):
            if parts := _said(message):
                calls = [_Call(part) for part in parts if isinstance(part, ToolCallPart)]
                turns.append(_Turn(replace(message, parts=parts), calls))
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                _bind(turns, part)
        if rest := [part for part in message.parts if not isinstance(part, ToolReturnPart)]:
            turns[-1].requests.append(replace(message, parts=rest))
    return turns


def _said(response: ModelResponse) -> list[ModelResponsePart]:
    """Return the parts of a response that say something. Providers refuse a response that ends in a thought."""
    parts = [part for part in response.parts if not _is_blank(part)]
    while parts and isinstance(parts[-1], ThinkingPart):
        parts.pop()
    return parts


def _is_blank(part: ModelResponsePart) -> bool:
    match part:
        case TextPart():
            return not part.content.strip() and not part.provider_details
        case ToolCallPart():
            return not part.tool_name
        case _:
            return False


def _bind(turns: Sequence[_Turn], result: ToolReturnPart) -> None:
    """Give a result to its call: an id may occur again, so it is looked for from the newest response backwards."""
    for turn in reversed(turns):
        for call in turn.calls:
            if call.id == result.tool_call_id and call.result is None:
                call.result = result
                return


def _tell_fates(turns: Sequence[_Turn], ledger: Ledger) -> None:
    """Note what the ledger knows of each call. It knows nothing of responses that were cut off, nor is there a need."""
    later: Counter[str] = Counter()
    for turn in reversed(turns):
        for call in reversed(turn.calls if not turn.cut_off else []):
            call.fate = ledger.fate(call.id, back=later[call.id])
            later[call.id] += 1


def _without_withdrawn(turns: Sequence[_Turn], *, resuming: bool) -> list[_Turn]:
    """Leave out answers that another response follows at once: the model was asked again without them.

    When the run goes on, the model is about to be asked again, so this holds at the end as well.
    """
    kept: list[_Turn] = []
    for turn in reversed(turns):
        asked_again = bool(kept) or resuming
        if turn.response is None or turn.followed or not asked_again:
            kept.append(turn)
    return kept[::-1]


def _tell_apart(turns: Sequence[_Turn]) -> None:
    """Give earlier calls another id where a later one has the same: some providers want each only once."""
    calls = [call for turn in turns for call in turn.calls]
    total, seen = Counter(call.id for call in calls), Counter[str]()
    used = set(total)
    for call in calls:
        id = call.id
        seen[id] += 1
        if seen[id] < total[id]:
            new = f"{id}_{seen[id]}"
            while new in used:
                new += "_"
            used.add(new)
            call.part = replace(call.part, tool_call_id=new)
            call.result = call.result and replace(call.result, tool_call_id=new)


def _decided(turn: _Turn) -> DeferredToolResults | None:
    """Return what was decided about the calls of a turn that wait to be carried out; None if there are none."""
    results = DeferredToolResults()
    if len({call.id for call in turn.calls}) < len(turn.calls):
        return None
    for call in turn.calls:
        if call.result is None and isinstance(call.fate, Answered):
            _decide(results, call.fate.answer)
    return results if results.approvals or results.calls else None


def _decide(results: DeferredToolResults, answer: Answer) -> None:
    if answer.rule is not None:
        results.metadata[answer.call] = {RULE_KEY: answer.rule}
    match answer.decision:
        case "approve" | "edit":
            results.approvals[answer.call] = ToolApproved(override_args=answer.args)
        case "reply":
            results.calls[answer.call] = ToolReturn(answer.value)
        case "reject" if answer.request == "approval":
            results.approvals[answer.call] = ToolDenied(answer.reason or REJECTED)
        case "reject":
            results.calls[answer.call] = ToolFailed(answer.reason or REJECTED)


def _closing(call: _Call, turn: _Turn) -> ToolReturnPart:
    """Return a result for a call that has none."""
    assert turn.response is not None
    outcome, content = _known(call.fate)
    return ToolReturnPart(
        tool_name=call.part.tool_name,
        content=content,
        tool_call_id=call.id,
        tool_kind=call.part.tool_kind,
        outcome=outcome,
        # The same at each load, so that a provider's cache goes on matching.
        timestamp=turn.response.timestamp,
    )


def _known(fate: Fate) -> tuple[Any, Any]:
    match fate:
        case Finished():
            return _OUTCOMES[fate.outcome], fate.result
        case Answered(Answer(decision="reply", value=value)):
            return "success", value
        case Answered(Answer(decision="reject", reason=reason)):
            return "denied", reason or REJECTED
        case Answered() | NeverStarted():
            return "interrupted", NOT_EXECUTED
        case Unknown():
            return "interrupted", OUTCOME_UNKNOWN


def _messages(turn: _Turn) -> Iterator[ModelMessage]:
    if turn.response is not None:
        calls = iter(turn.calls)
        parts = [next(calls).part if isinstance(part, ToolCallPart) else part for part in turn.response.parts]
        yield replace(turn.response, parts=parts)
    if results := [call.result for call in turn.calls if call.result is not None]:
        yield ModelRequest(parts=results)
    yield from turn.requests
