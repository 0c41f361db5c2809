"""What the model is shown of a thread is bounded, valid for every provider, and never taken from what is stored."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import PydanticAIDeprecationWarning
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryPromptPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

from tests.runner.test_continuable import known, stories
from tests.support.histories import asks, call, result, returns, says, texts
from tests.support.strict import refusals
from threadhold import Window
from threadhold.runner.history import continuable
from threadhold.runner.ledger import Ledger
from threadhold.runner.shortening import chars_of, cut_text
from threadhold.runner.window import BLOCKS, SUMMARY, Summaries, view_of, with_summary

History = list[ModelMessage]
RUN = "run-2"


def of_run(message: ModelMessage, run: str) -> ModelMessage:
    return replace(message, run_id=f"{run}:1:1") if isinstance(message, ModelResponse) else message


def turn(n: int, *, chars: int = 10) -> History:
    """A question, a call with its result, and an answer."""
    return [
        asks(f"q{n} " + "x" * chars),
        says(call(f"c{n}")),
        returns(result(f"c{n}", "r" * chars)),
        says(f"a{n}"),
    ]


def chars_shown(messages: Sequence[ModelMessage]) -> int:
    """Count, in a way of its own, what people, the model and tools have said."""
    parts = [part for message in messages for part in message.parts]
    told: list[Any] = [p.content for p in parts if isinstance(p, UserPromptPart | TextPart | ThinkingPart)]
    told += [part.content for part in parts if isinstance(part, ToolReturnPart | RetryFeedbackPart)]
    told += [part.args_as_json_str() for part in parts if isinstance(part, ToolCallPart)]
    return sum(len(each) for each in told if isinstance(each, str))


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    return [text.split()[0] for text in texts(messages, UserPromptPart)]


TEXTS = st.sampled_from(["a few words", "y" * 90, "z" * 700, "  " + "w" * 3_000])


@st.composite
def turns(draw: st.DrawFn, run: str, n: int, *, steps: int = 4) -> History:
    """A run: what somebody asked, steps of calls and of what people say in between, and an answer."""
    story: History = [asks(draw(TEXTS))]
    for step in range(draw(st.integers(0, steps))):
        ids = [f"{run}-{n}-{step}-{each}" for each in range(draw(st.integers(0, 3)))]
        thoughts = draw(st.lists(st.builds(ThinkingPart, TEXTS, signature=st.just("s")), max_size=1))
        words = draw(st.lists(TEXTS, min_size=0 if ids else 1, max_size=1))
        calls = [call(id, text=draw(TEXTS), list=[draw(TEXTS), 1, {"deep": draw(TEXTS)}]) for id in ids]
        story.append(of_run(says(*thoughts, *words, *calls), run))
        if ids:
            story.append(returns(*(result(id, draw(TEXTS)) for id in ids)))
        if not ids or draw(st.booleans()):
            story.append(asks(draw(TEXTS)))
    return story


@st.composite
def threads(draw: st.DrawFn) -> tuple[History, int]:
    """Earlier runs, and the present one up to a request, with where that begins."""
    system = draw(st.lists(st.just(SystemPromptPart("s" * 5_000)), max_size=1))
    earlier = [
        [*draw(turns("run-1", n)), of_run(says("done"), "run-1")] for n in range(draw(st.integers(0, 6)))
    ]
    own = sum(map(len, earlier))
    first, *rest = [message for story in [*earlier, draw(turns(RUN, 0, steps=8))] for message in story]
    assert isinstance(first, ModelRequest)
    return [replace(first, parts=[*system, *first.parts]), *rest], own


WINDOWS = st.builds(
    Window,
    messages=st.integers(4, 30),
    chars=st.integers(1_000, 8_000),
    compact=st.sampled_from([None, lambda dropped: "They talked. " * 500]),
)


def check(history: History, window: Window) -> None:
    """Demand everything that holds whatever a history and its window are."""
    before = repr(history)
    view = view_of(history, window, run=RUN)
    if view.dropped and window.compact is not None:
        view = with_summary(view, "They talked. " * 500, window)
    assert refusals(repair_messages(view.shown)) == []
    assert len(repair_messages(view.shown)) <= window.messages
    assert chars_shown(view.shown) <= view.chars <= window.chars
    assert isinstance(view.shown[0], ModelRequest)
    assert isinstance(view.shown[-1], ModelRequest)
    assert view.dropped or view.cut or view.shown == history
    assert texts(view.shown, SystemPromptPart) == texts(history, SystemPromptPart)
    assert any(isinstance(part, UserPromptPart) for part in view.shown[0].parts)
    assert repr(history) == before


@settings(max_examples=300)
@given(threads(), WINDOWS)
def test_any_history_is_cut_to_one_that_is_accepted_and_within_the_bound(
    thread: tuple[History, int], window: Window
) -> None:
    check(thread[0], window)


@settings(max_examples=150)
@given(stories(), known(), st.integers(4, 8))
def test_so_is_one_in_which_everything_went_wrong(story: History, ledger: Ledger, messages: int) -> None:
    check(
        [*continuable(story, ledger).messages, asks("a new message")], Window(messages=messages, chars=1_000)
    )


@settings(max_examples=150)
@given(threads(), WINDOWS)
def test_what_goes_is_whole_and_of_the_present_run_only_what_must(
    thread: tuple[History, int], window: Window
) -> None:
    history, begin = thread
    view = view_of(history, window, run=RUN)
    calls = [part.tool_call_id for m in view.shown for part in m.parts if isinstance(part, ToolCallPart)]
    gone = [part.tool_call_id for m in view.dropped for part in m.parts if isinstance(part, ToolCallPart)]
    every = [part.tool_call_id for m in history for part in m.parts if isinstance(part, ToolCallPart)]
    assert gone + calls == every
    assert refusals(repair_messages([asks("before"), *view.dropped, asks("behind")])) == []
    # What people said in the present run is shown, whatever of it goes; and nothing goes while earlier turns are shown.
    own = texts(history[begin:], UserPromptPart)
    said = texts(view.shown, UserPromptPart)[-len(own) :]
    assert [text.strip()[0] for text in said] == [text.strip()[0] for text in own]
    if any(message in view.dropped for message in history[begin:] if isinstance(message, ModelResponse)):
        assert len(view.dropped) >= begin
        assert len(texts(view.shown, UserPromptPart)) == len(own)


def test_a_history_within_the_bound_is_shown_as_it_is() -> None:
    history = [*turn(1), asks("now")]
    view = view_of(history, Window(messages=5, chars=1_000), run=RUN)
    assert (view.shown, view.dropped, view.cut) == (history, [], 0)


def test_whole_turns_go_from_the_front() -> None:
    history = [message for n in range(6) for message in turn(n)] + [asks("now")]
    view = view_of(history, Window(messages=12), run=RUN)
    assert prompts(view.shown) == ["q4", "q5", "now"]
    assert view.dropped == history[:16]
    assert view.shown == history[16:]


def test_turns_go_rather_than_that_texts_are_cut() -> None:
    history = [message for n in range(6) for message in turn(n, chars=200)] + [asks("now")]
    view = view_of(history, Window(chars=1_000), run=RUN)
    assert (prompts(view.shown), view.cut) == (["q4", "q5", "now"], 0)


def test_what_people_say_at_a_time_counts_as_one_message() -> None:
    history = [*turn(1), *(asks(f"s{n}") for n in range(20))]
    assert view_of(history, Window(messages=5), run=RUN).shown == history


@pytest.mark.parametrize("window", [Window(messages=40), Window(chars=1_000)])
def test_the_same_beginning_is_shown_for_many_requests(window: Window) -> None:
    history, begins = History(), []
    for n in range(60):
        history += turn(n)
        begins.append(len(view_of([*history, asks("now")], window, run=RUN).dropped))
    moves = sum(before != after for before, after in pairwise(begins))
    blocks = len(history) / window.messages + sum(map(chars_of, history)) / window.chars
    assert begins[-1] >= len(history) / 4
    assert 2 < moves <= blocks * BLOCKS < len(begins)


def test_the_present_run_is_shown_whole_while_it_fits() -> None:
    own = [asks("mine"), *(of_run(m, RUN) for n in range(4) for m in turn(n)[1:3])]
    view = view_of([*turn(7), *turn(8), *own], Window(messages=9), run=RUN)
    assert view.shown == own


def test_a_run_that_is_too_long_keeps_what_it_was_asked_and_its_newest_steps() -> None:
    steps = [of_run(m, RUN) for n in range(20) for m in turn(n)[1:3]]
    steering = ModelRequest(parts=[*steps[1].parts, UserPromptPart("steered")])
    own = [asks("mine"), steps[0], steering, *steps[2:]]
    view = view_of([*turn(21), *own], Window(messages=10), run=RUN)
    assert prompts(view.shown) == ["mine", "steered"]
    assert view.shown[-2:] == own[-2:]
    assert len(repair_messages(view.shown)) <= 10
    assert texts(view.dropped, UserPromptPart) == ["q21 " + "x" * 10]


def test_results_of_a_run_that_was_cut_off_go_with_their_calls() -> None:
    """The next message stands in one request with them."""
    both = ModelRequest(parts=[result("c"), UserPromptPart("next")])
    view = view_of([asks("first" * 300), says(call("c")), both], Window(chars=1_000), run=RUN)
    assert view.shown == [replace(both, parts=both.parts[1:])]
    assert [type(part) for part in view.dropped[-1].parts] == [ToolReturnPart]


def test_a_huge_message_is_cut_where_it_is_shown() -> None:
    history: History = [
        asks("start " + "x" * 50_000),
        says(call("c", text="y" * 50_000, n=1)),
        returns(result("c", ["z" * 9_000])),
    ]
    view = view_of(history, Window(chars=1_000), run=RUN)
    assert (len(view.shown), view.dropped, view.cut) == (3, [], 3)
    assert view.chars <= 1_000 < len(texts(history, UserPromptPart)[0])
    (prompt,) = texts(view.shown, UserPromptPart)
    assert prompt.startswith("start x")
    assert "[50006 characters, the rest is not shown]" in prompt
    (made,) = [part for part in view.shown[1].parts if isinstance(part, ToolCallPart)]
    args = made.args_as_dict()
    assert (args["n"], args["text"][:3]) == (1, "yyy")


def test_texts_beside_files_are_cut_and_the_files_stay() -> None:
    picture = BinaryContent(data=b"abc", media_type="image/png")
    told: list[Any] = ["start " + "x" * 50_000, picture, TextContent("y" * 50_000), *["z"] * 20]
    history: History = [
        ModelRequest(parts=[UserPromptPart(told)]),
        says(call("c")),
        returns(ToolReturnPart("t", ["r" * 50_000, picture], tool_call_id="c")),
    ]
    view = view_of(history, Window(chars=12_000), run=RUN)
    assert (view.cut, view.chars <= 12_000, refusals(view.shown)) == (2, True, [])
    (prompt,) = [part for part in view.shown[0].parts if isinstance(part, UserPromptPart)]
    assert [type(item) for item in prompt.content] == [str, BinaryContent, TextContent, *[str] * 20]
    assert str(prompt.content[0]).startswith("start x")
    (returned,) = [part for part in view.shown[2].parts if isinstance(part, ToolReturnPart)]
    assert returned.files == [picture]
    many = [ModelRequest(parts=[UserPromptPart(["z"] * 5_000)])]
    assert view_of(many, Window(chars=1_000), run=RUN).chars <= 1_000


def test_a_part_that_the_library_has_given_up_is_cut_as_well() -> None:
    with pytest.warns(PydanticAIDeprecationWarning, match="RetryPromptPart"):
        old = RetryPromptPart("x" * 50_000)
    view = view_of([asks("go"), says("no"), ModelRequest(parts=[old])], Window(chars=1_000), run=RUN)
    assert (view.cut, view.chars <= 1_000) == (1, True)


def test_what_is_left_of_a_text_says_something() -> None:
    assert cut_text(" " * 500 + "x" * 500, 20) == "x" * 20
    assert cut_text("x" * 500, 1) == "x"
    assert len(cut_text("x" * 5_000, 200)) == 200


def test_a_thought_that_is_too_long_is_left_out() -> None:
    thought = of_run(says(ThinkingPart("t" * 5_000, signature="s")), RUN)
    history: History = [asks("go"), thought, asks("go on")]
    (_, answer, _) = view_of(history, Window(chars=1_000), run=RUN).shown
    assert [type(part) for part in answer.parts] == [TextPart]
    assert refusals(view_of(history, Window(chars=1_000), run=RUN).shown) == []


def test_a_summary_stands_at_the_front_behind_what_the_system_says() -> None:
    first = ModelRequest(parts=[SystemPromptPart("be kind"), UserPromptPart("q")])
    history = [first, *(m for n in range(6) for m in turn(n)[1:]), asks("now")]
    window = Window(messages=6, compact=lambda dropped: "")
    view = with_summary(view_of(history, window, run=RUN), "They met.", window)
    system, summary = view.shown[0].parts[:2]
    assert isinstance(system, SystemPromptPart)
    assert isinstance(summary, UserPromptPart)
    assert (system.content, summary.content) == ("be kind", f"{SUMMARY}They met.")


@pytest.mark.parametrize("bounds", [{"messages": 3}, {"chars": 999}])
def test_a_window_has_room_for_a_turn(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        Window(**bounds)  # type: ignore[arg-type]


def test_summaries_of_the_newest_threads_are_kept() -> None:
    kept = Summaries()
    for n in range(1_001):
        kept.keep(f"t{n}", "d", f"s{n}")
    assert (kept.get("t0", "d"), kept.get("t1", "d"), kept.get("t1000", "other")) == (None, "s1", None)
