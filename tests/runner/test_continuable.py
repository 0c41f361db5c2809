"""A stored history is made valid for every provider, wherever it was cut off and whatever is known of its calls."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import DeferredToolResults
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.support.histories import asks, call, result, returns, says, texts
from tests.support.strict import refusals
from threadhold.runner.history import continuable, dumped, loaded, open_calls
from threadhold.runner.ledger import Answer, Answered, Fate, Finished, Ledger, NeverStarted, Unknown

History = list[ModelMessage]

TWO_TURNS: History = [asks("hi"), says("hello"), asks("and now"), says("now this")]
PARALLEL: History = [
    asks("count"),
    says("I count.", call("a"), call("b"), call("c")),
    returns(result("a"), result("b"), result("c")),
    says("Once more.", call("d")),
    returns(result("d")),
    says("Done."),
]
SAME_IDS: History = [
    asks("first"),
    says(call("x"), call("y")),
    returns(result("x", "one"), result("y", "two")),
    says(call("x")),
    returns(result("x", "three")),
    asks("second"),
    says(call("y"), call("x")),
    returns(result("y", "four"), result("x", "five")),
    says("That is all."),
]
STEERED: History = [
    asks("go"),
    says("Going.", call("a"), call("b")),
    returns(result("a"), result("b")),
    asks("faster"),
    asks("left"),
    says("Left it is.", call("c")),
    ModelRequest(parts=[result("c"), UserPromptPart("stop there")]),
    says("Stopped."),
]
THINKING: History = [
    asks("think"),
    says(ThinkingPart("hm", signature="signed"), "   ", call("a")),
    returns(result("a")),
    says(ThinkingPart("so"), call("out", tool="final_result")),
    returns(result("out", "no", tool="final_result")),
    says(ThinkingPart("nothing", signature="signed")),
    ModelRequest(parts=[RetryFeedbackPart("what is the answer?", retry=RetryInfo(cause="no_output"))]),
    says(ThinkingPart("well"), "42"),
]
# A blank text, and the thought of a response that has nothing else.
SILENT = ("   ", "nothing")
HISTORIES = [TWO_TURNS, PARALLEL, SAME_IDS, STEERED, THINKING]

APPROVE = Answer(call="", request="approval", decision="approve")
REPLY = Answer(call="", request="question", decision="reply", value="blue")
FATES: list[Fate] = [
    NeverStarted(),
    Unknown(),
    Finished("ok", "recorded"),
    Finished("failed", "broken"),
    Answered(APPROVE),
    Answered(REPLY),
]


def cuts(history: Sequence[ModelMessage]) -> Iterator[History]:
    """Every way in which a history may have been cut off."""
    for n, message in enumerate(history):
        before = list(history[:n])
        yield before
        if isinstance(message, ModelResponse):
            for parts in range(len(message.parts) + 1):
                yield [*before, replace(message, parts=message.parts[:parts], state="interrupted")]
        else:
            results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            for kept in product([True, False], repeat=len(results)):
                some = [part for part, keep in zip(results, kept, strict=True) if keep]
                yield [*before, ModelRequest(parts=some, state="interrupted")]
    yield list(history)


def ledgers(history: History) -> Iterator[Ledger]:
    """Everything that may be known of the calls that have no result."""
    ids = open_calls(history)
    for fates in product(FATES, repeat=len(ids)):
        yield Ledger({id: (_of(id, fate),) for id, fate in zip(ids, fates, strict=True)})


def _of(id: str, fate: Fate) -> Fate:
    """Give an answer the call's id, and a result a text that is found again."""
    match fate:
        case Answered():
            return Answered(replace(fate.answer, call=id))
        case Finished():
            return Finished(fate.outcome, f"{fate.result} {id}")
        case _:
            return fate


def answered(messages: History, results: DeferredToolResults | None) -> History:
    """Add what comes of the calls that are still to be made, behind the results that are there."""
    ids = [] if results is None else [*results.approvals, *results.calls]
    if not ids:
        return messages
    last = max(n for n, message in enumerate(messages) if isinstance(message, ModelResponse))
    behind = [part for message in messages[last + 1 :] for part in message.parts]
    done = [part for part in behind if isinstance(part, ToolReturnPart)]
    rest = [part for part in behind if not isinstance(part, ToolReturnPart)]
    return [*messages[: last + 1], ModelRequest(parts=[*done, *map(result, ids), *rest])]  # type: ignore[list-item]


def check(history: History, ledger: Ledger) -> None:
    """Demand everything that holds whatever a history and its ledger are."""
    new = continuable(history, ledger)
    assert new.results is None
    assert refusals([*new.messages, asks("a new message")]) == []
    assert continuable(new.messages, ledger) == new

    on = continuable(history, ledger, resuming=True)
    if on.messages:
        assert refusals(answered(on.messages, on.results)) == []
    assert continuable(on.messages, ledger, resuming=True) == on

    for messages in (new.messages, on.messages):
        assert all(type(one) is not type(next) for one, next in pairwise(messages))
        assert texts(messages, UserPromptPart) == texts(history, UserPromptPart)
        assert not _lost(history, messages)
    assert all(finding in str(texts(new.messages, ToolReturnPart)) for finding in _finished(history, ledger))
    on_results = str(texts(on.messages, ToolReturnPart))
    assert all(finding in on_results for finding in _finished(history, ledger))


def _lost(history: History, messages: History) -> Counter[str]:
    """The results of calls that a history has and that are not in these messages."""
    made = Counter(part.tool_call_id for m in history for part in m.parts if isinstance(part, ToolCallPart))
    stored = Counter(
        str(part.content)
        for m in history
        for part in m.parts
        if isinstance(part, ToolReturnPart) and made[part.tool_call_id]
    )
    return stored - Counter(map(str, texts(messages, ToolReturnPart)))


def _finished(history: History, ledger: Ledger) -> list[str]:
    """The results that only the ledger has."""
    fates = [ledger.fate(id) for id in open_calls(history)]
    return [str(fate.result) for fate in fates if isinstance(fate, Finished)]


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_that_was_cut_off_anywhere_is_accepted_and_nothing_known_is_lost(history: History) -> None:
    for cut in cuts(history):
        for ledger in ledgers(cut):
            check(cut, ledger)
            check(loaded(dumped(cut)), ledger)


@pytest.mark.parametrize("history", HISTORIES)
def test_a_whole_history_is_left_as_it_is_but_for_what_says_nothing(history: History) -> None:
    parts = [
        part for message in history for part in message.parts if getattr(part, "content", "") not in SILENT
    ]
    kept = [part for message in continuable(history).messages for part in message.parts]
    assert [_bare(part) for part in kept] == [_bare(part) for part in parts]


def _bare(part: object) -> object:
    """A part without its id, since an id that occurs again is changed."""
    return replace(part, tool_call_id="") if isinstance(part, ToolCallPart | ToolReturnPart) else part


@pytest.mark.parametrize("history", HISTORIES)
def test_what_the_model_was_told_stays_as_it_was_at_later_loads(history: History) -> None:
    for cut in cuts(history):
        for ledger in ledgers(cut):
            before = [*continuable(cut, ledger).messages, asks("next")]
            after = continuable([*cut, asks("next"), says("answer")], ledger).messages
            assert _flat(after)[: len(_flat(before))] == _flat(before)

            on = continuable(cut, ledger, resuming=True)
            if on.messages and on.results is None:
                after = continuable([*cut, says("answer")], ledger).messages
                assert _flat(after) == [*_flat(on.messages), TextPart("answer")]


def _flat(messages: History) -> list[object]:
    return [part for message in messages for part in message.parts]


IDS = st.sampled_from("abc")
WORDS = st.sampled_from(["one", "two", " ", ""])
CALLS = st.lists(st.builds(call, IDS), max_size=3)
THOUGHTS = st.lists(st.builds(ThinkingPart, WORDS, signature=st.sampled_from([None, "signed"])), max_size=1)


@st.composite
def responses(draw: st.DrawFn) -> ModelResponse:
    """Anything that a model may have begun to say."""
    said: list[str | ThinkingPart] = [*draw(THOUGHTS), *draw(st.lists(WORDS, max_size=2))]
    parts = draw(st.permutations(said))
    return says(*parts, *draw(CALLS), cut_off=draw(st.booleans()))


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    """Results of calls that were made or not, what people say, or nothing."""
    results = [result(id, f"r{draw(st.integers(0, 99))}") for id in draw(st.lists(IDS, max_size=3))]
    said = [UserPromptPart(text) for text in draw(st.lists(st.sampled_from(["go", "stop"]), max_size=1))]
    return ModelRequest(parts=draw(st.permutations([*results, *said])))


@st.composite
def stories(draw: st.DrawFn) -> History:
    """A thread in which everything went wrong that can: runs that were cut off, one after the other."""
    runs = [
        [asks("hi"), *draw(st.lists(st.one_of(responses(), requests()), max_size=5))]
        for _ in range(draw(st.integers(1, 3)))
    ]
    return [message for run in runs for message in run]


@st.composite
def known(draw: st.DrawFn) -> Ledger:
    """Anything that may be known of calls; of some of them less than there are."""
    fates = {id: draw(st.lists(st.sampled_from(FATES), max_size=4)) for id in "abc"}
    return Ledger({id: tuple(_of(id, fate) for fate in of_id) for id, of_id in fates.items()})


@settings(max_examples=150, deadline=None)
@given(stories(), known())
def test_any_thread_is_accepted(history: History, ledger: Ledger) -> None:
    new = continuable(history, ledger)
    assert refusals([*new.messages, asks("a new message")]) == []
    assert continuable(new.messages, ledger) == new
    assert texts(new.messages, UserPromptPart) == texts(history, UserPromptPart)
    assert open_calls(new.messages) == []

    on = continuable(history, ledger, resuming=True)
    assert refusals(answered(on.messages, on.results)) == []
    assert continuable(on.messages, ledger, resuming=True) == on
    assert texts(on.messages, UserPromptPart) == texts(history, UserPromptPart)
    waiting = [] if on.results is None else sorted([*on.results.approvals, *on.results.calls])
    assert open_calls(on.messages) == waiting


@settings(max_examples=100, deadline=None)
@given(stories(), known())
def test_nothing_that_was_said_to_people_or_by_them_changes_at_later_loads(
    history: History, ledger: Ledger
) -> None:
    before = [*continuable(history, ledger).messages, asks("next")]
    after = continuable([*history, asks("next"), says("answer")], ledger).messages
    assert _flat(after) == [*_flat(before), TextPart("answer")]
