"""Secrets that come in pieces, in live frames and on a process's output, and those that are logged."""

import json
import logging
from dataclasses import dataclass
from typing import Any, cast

import pytest
import structlog
from pydantic_ai import CustomEvent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UnknownCustomEvent,
    UserPromptPart,
)

from tests.runner.test_credentials import HUSH, KEY, secrets
from threadhold.adapters.logs import configure_logs
from threadhold.adapters.output import ScrubbedOutput
from threadhold.runner.clean_records import clean_facts, clean_history
from threadhold.runner.credentials import PROCESS
from threadhold.runner.drafts import draft_data
from threadhold.runner.history import loaded
from threadhold.runner.live_scrubbing import Drafts, LiveText
from threadhold.runner.records import NewFact
from threadhold.runner.scrubbing import MARKER, Known, Scrubber
from threadhold.runner.segment import failed


@dataclass(kw_only=True)
class PieceEvent(CustomEvent):
    """A piece of what a tool reads."""

    text: str
    n: int = 0


@dataclass(kw_only=True)
class StepEvent(CustomEvent):
    """How far a tool has come."""

    step: str | None = None
    other: str | None = None


def drafted(*texts: str) -> list[str]:
    """Return what watchers see of a tool that tells these texts one by one."""
    with secrets() as known:
        known.learn(HUSH)
        drafts = Drafts(known.scrubber)
        shown = [each for text in texts for each in drafts.take(PieceEvent(text=text, tool_call_id="c"))]
        shown += drafts.end("c")
    assert [set(each) for each in shown] == [set(draft_data(PieceEvent(text="")))] * len(texts)
    return [each["text"] for each in shown]


@pytest.mark.parametrize("secret", [HUSH, KEY, f"password={HUSH}"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 20])
def test_a_secret_in_several_events_is_not_shown(secret: str, size: int) -> None:
    text = f"it says: {secret}, and so on"
    shown = "".join(drafted(*(text[place : place + size] for place in range(0, len(text), size))))
    assert shown.startswith("it says: ")
    assert shown.endswith(f"{MARKER}, and so on")
    # At most three characters of its beginning stand there, where each event tells as little.
    assert len(shown) <= len("it says: password=, and so on") + len(MARKER) + 3


def test_events_that_tell_no_secret_are_shown_as_they_are_and_at_once() -> None:
    texts = [
        "looking up prices",
        "done",
        "the pass",
        "age",
        "",
        "token",
        " of thanks",
        "AKI",
        "-----BEGIN",
        " of all",
    ]
    assert drafted(*texts) == texts
    with secrets() as known:
        drafts = Drafts(known.scrubber)
        assert len(drafts.take(PieceEvent(text="looking up prices"))) == 1


def test_an_event_waits_for_the_next_one_and_no_longer() -> None:
    def told(step: str | None = None, other: str | None = None) -> list[dict[str, Any]]:
        return drafts.take(StepEvent(step=step, other=other, tool_call_id="c"))

    with secrets() as known:
        known.learn(HUSH)
        drafts = Drafts(known.scrubber)
        assert told(step="reset password") == []
        assert [each.get("step") for each in told(other="well")] == ["reset password", None]
        assert told(other="reset password") == []
        shown = [*told(step=f"={HUSH}"), *told(other="=hunter22"), *drafts.end("c")]
    assert [(each["step"], each["other"]) for each in shown] == [
        (None, "reset password"),
        (f"={MARKER}", None),
        (None, f"={MARKER}"),
    ]


def test_the_name_of_an_event_is_scrubbed_too() -> None:
    with secrets() as known:
        known.learn(HUSH)
        (shown,) = Drafts(known.scrubber).take(UnknownCustomEvent(name=f"at-{HUSH}"))
    assert shown["name"] == f"at-{MARKER}"


def test_what_is_printed_is_scrubbed_and_nothing_is_lost() -> None:
    class Out(list[str]):
        encoding, errors = "utf-8", "strict"

        def write(self, text: str) -> int:
            self.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    out: Any = Out()
    printed = ScrubbedOutput(out, PROCESS)
    with secrets() as known:
        known.learn(HUSH)
        for piece in ("hello ", KEY[:9], f"{KEY[9:]} ", HUSH[:5], HUSH[5:], "\npassword"):
            print(piece, end="", file=printed, flush=True)
        assert "".join(out) == f"hello {MARKER} {MARKER}\n"
    printed.finish()
    assert "".join(out) == f"hello {MARKER} {MARKER}\npassword"


KNOWN = Scrubber(Known([HUSH]), likely=False)
PARTS = [
    (TextPart, TextPartDelta, "content_delta", {}),
    (ThinkingPart, ThinkingPartDelta, "content_delta", {}),
    (lambda text: ToolCallPart("t", text), ToolCallPartDelta, "args_delta", {"tool_call_id": "c"}),
]


@pytest.mark.parametrize(("part", "delta", "name", "more"), PARTS, ids=["text", "thinking", "call"])
@pytest.mark.parametrize("cut", range(len(HUSH) + 1))
def test_a_known_value_in_a_models_deltas_is_not_shown(
    part: Any, delta: Any, name: str, more: dict[str, str], cut: int
) -> None:
    live = LiveText(KNOWN)
    whole = f"it is {HUSH[:cut]}{HUSH[cut:]} hus"
    pieces = [whole[: 6 + cut], whole[6 + cut :]]
    events = [
        PartStartEvent(index=3, part=part("")),
        *(PartDeltaEvent(index=3, delta=delta(**{name: piece})) for piece in pieces),
        PartEndEvent(index=3, part=part(whole)),
    ]
    shown = [each for event in events for each in live.hear(event)]
    told = "".join(getattr(each.delta, name) for each in shown if isinstance(each, PartDeltaEvent))
    assert told == f"it is {MARKER} hus"
    assert shown[-1] is events[-1]
    assert HUSH not in str(live.clean({"event_kind": "part_end", "part": {"content": whole}}))


def test_where_nothing_is_known_a_models_events_are_what_they_are() -> None:
    live = LiveText(Scrubber(Known(), likely=False))
    events = [
        PartStartEvent(index=0, part=TextPart("a")),
        PartDeltaEvent(index=0, delta=TextPartDelta(KEY)),
        PartEndEvent(index=0, part=TextPart(f"a{KEY}")),
    ]
    for event in events:
        (same,) = live.hear(event)
        assert same is event


def test_what_a_model_was_cut_off_in_does_not_show_the_beginning_of_a_secret() -> None:
    said: list[ModelMessage] = [ModelResponse([TextPart(f"it is {HUSH[:9]}")], state="interrupted")]
    (message,) = clean_history(said, KNOWN)
    assert message["parts"][0]["content"] == f"it is {MARKER}"
    fact = NewFact(kind="model_called", data={"state": "interrupted", "text": f"it is {HUSH[:9]}"})
    assert clean_facts([fact], KNOWN)[0].data["text"] == f"it is {MARKER}"


WORDS = [
    "content",
    "complete",
    "tool-call",
    "tool-return",
    "binary",
    "call-1",
    "part_kind",
    "success",
    "response",
]


@pytest.mark.parametrize("word", WORDS)
def test_a_history_can_be_read_again_whatever_word_is_a_secret(word: str) -> None:
    scrubber = Scrubber(Known([word]), likely=False)
    file = BinaryContent(f"is {word} it".encode(), media_type="text/plain")
    result = ToolReturnPart("fetch", {word: [word, file]}, tool_call_id="call-1", metadata={word: 1})
    said: list[ModelMessage] = [
        ModelRequest(
            [
                UserPromptPart(["look at", file]),
                RetryFeedbackPart(word, retry=RetryInfo(cause="model_retry")),
            ]
        ),
        ModelResponse([TextPart(f"a {word}"), ToolCallPart("fetch", {word: word}, tool_call_id="call-1")]),
        ModelRequest([result]),
    ]
    first, answer, last = loaded(clean_history(said, scrubber))
    text, call, returned, asked = (cast(Any, part) for part in (*answer.parts, last.parts[0], first.parts[0]))
    assert (text.content, call.args, call.tool_call_id) == (f"a {MARKER}", {MARKER: MARKER}, "call-1")
    assert returned.metadata == {MARKER: 1}
    ((key, (told, shown)),) = returned.content.items()
    assert (key, told, asked.content[1].data) == (MARKER, MARKER, f"is {MARKER} it".encode())
    assert shown.data == f"is {MARKER} it".encode()


@pytest.mark.parametrize("word", ["completed", "person", "status", "call_id", "output"])
def test_a_fact_says_what_it_is_whatever_word_is_a_secret(word: str) -> None:
    words = {"status": "completed", "reason": "person", "call_id": "completed"}
    data = words | {"output": {"status": "completed"}, "odd": {"status": "completed"}}
    (fact,) = clean_facts([NewFact(kind="run_ended", data=data)], Scrubber(Known([word]), likely=False))
    told = {"status": MARKER if word == "completed" else "completed"}
    output = {MARKER: "completed"} if word == "status" else told
    assert fact.data == words | {"output": output, "odd": told}


def test_what_is_logged_is_scrubbed(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    with secrets() as known:
        known.learn(HUSH)
        structlog.get_logger("t").error(
            "told", what={"token": "abc", "all": [HUSH, 1]}, odd=Odd(), n=1.5, password="abc"
        )
        try:
            raise LookupError(HUSH) from OSError(KEY)
        except LookupError:
            logging.getLogger("t").exception("no %s", HUSH)
    told, raised = map(json.loads, capsys.readouterr().err.splitlines())
    assert told["password"] == MARKER
    assert (told["what"], told["odd"], told["n"]) == (
        {"token": MARKER, "all": [MARKER, 1]},
        f"odd {MARKER}",
        1.5,
    )
    assert raised["event"] == f"no {MARKER}"
    assert f"LookupError: {MARKER}" in raised["exception"]
    assert HUSH not in str(raised)
    assert KEY not in str(raised)


def test_what_an_agent_fails_with_is_scrubbed(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    with secrets() as known:
        known.learn(HUSH)
        try:
            raise LookupError(f"no {HUSH}") from OSError(KEY)
        except LookupError as error:
            segment = failed(error)
    assert segment.error == {"type": "LookupError", "message": f"no {MARKER}"}
    logged = json.loads(capsys.readouterr().err)["traceback"]
    assert f"OSError: {MARKER}" in logged
    assert HUSH not in logged


class Odd:
    """Something that is logged although it is no JSON."""

    def __repr__(self) -> str:
        return f"odd {HUSH}"
