"""What agents and tools tell their watchers themselves: `draft` frames, live only, and never worth a run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, CustomEvent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import CapabilityEvent
from pydantic_ai.models import ModelRequestContext

from tests.runner.conftest import ME, Bench, kinds, of_kind
from tests.runner.test_unruly_agents import host
from tests.support.agents import ProgressEvent
from tests.support.scripted import scripted_model
from threadhold import Hosted
from threadhold.fanout.frame import Frame
from threadhold.runner.drafts import DRAFT_CHARS_MAX, draft_data
from threadhold.runner.errors import InvalidInput


@dataclass(kw_only=True)
class AnythingEvent(CustomEvent):
    """An event that holds whatever a test gives it."""

    thing: Any = None


@dataclass(kw_only=True)
class ShapedEvent(CustomEvent):
    """An event that shows people something else than its fields."""

    payload: Any = None

    def to_payload(self) -> Any:
        """Return what people are shown."""
        if isinstance(self.payload, Exception):
            raise self.payload
        return self.payload


@dataclass(kw_only=True)
class BackstageEvent(CustomEvent, ui=False):
    """An event for the application's own handlers."""

    secret: str


@dataclass(kw_only=True)
class NoteEvent(CapabilityEvent, namespace="tests"):
    """An event of a capability, defined long after the adapter of events was built."""

    text: str


ENVELOPE = {"event_kind": "custom", "name": "anything", "tool_call_id": None, "tool_name": None}


def endless() -> dict[str, Any]:
    """Return what contains itself."""
    thing: dict[str, Any] = {}
    thing["self"] = thing
    return thing


def test_a_draft_has_the_events_own_fields_beside_its_name_and_its_call() -> None:
    event = ProgressEvent(done=1, total=2, tool_call_id="c", tool_name="report")
    assert draft_data(event) == {
        "event_kind": "custom",
        "name": "progress",
        "tool_call_id": "c",
        "tool_name": "report",
        "done": 1,
        "total": 2,
    }


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"part": 1}, {"part": 1}),
        ({"name": "forged"}, {}),
        ([1, 2], {"data": [1, 2]}),
        ("half", {"data": "half"}),
        (None, {}),
        (LookupError("no"), {"omitted": "not JSON"}),
    ],
)
def test_an_event_decides_what_people_see_of_it(payload: object, shown: dict[str, object]) -> None:
    assert draft_data(ShapedEvent(payload=payload)) == ENVELOPE | {"name": "shaped"} | shown


@pytest.mark.parametrize(
    "thing",
    [object(), b"\xff", endless(), (LookupError(n) for n in range(2)), [[]] * 3 + [{1: {2: object()}}]],
    ids=range(5),
)
def test_what_is_not_json_is_left_out_and_said_to_be(thing: object) -> None:
    assert draft_data(AnythingEvent(thing=thing)) == ENVELOPE | {"omitted": "not JSON"}


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert draft_data(AnythingEvent(thing=[float("nan"), float("inf"), 1.5]))["thing"] == [None, None, 1.5]


@pytest.mark.parametrize(("chars", "fits"), [(DRAFT_CHARS_MAX - 13, True), (DRAFT_CHARS_MAX - 12, False)])
def test_what_is_too_large_is_left_out_with_its_size(chars: int, fits: bool) -> None:
    text = "x" * chars
    size = len(json.dumps({"thing": text}))
    shown = {"thing": text} if fits else {"omitted": "too large", "chars": size}
    assert (size <= DRAFT_CHARS_MAX) is fits
    assert draft_data(AnythingEvent(thing=text)) == ENVELOPE | shown


async def frames(bench: Bench, content: str, **options: Any) -> list[Frame]:
    """Send, and return the frames of the thread until it is idle."""
    receipt = await bench.send(content)
    watch = bench.runner.watch(receipt.thread, by=ME, after="start", until="idle", **options)
    return [delivery.frame async for delivery in watch]


async def test_a_tools_events_are_drafts_between_its_call_and_its_result_and_on_no_log(bench: Bench) -> None:
    seen = await frames(bench, 'call report {"total": 3}')
    drafts = [frame.data for frame in seen if frame.kind == "draft"]
    assert [(each["name"], each["done"], each["total"]) for each in drafts] == [
        ("progress", done, 3) for done in (1, 2, 3)
    ]
    assert {(each["tool_name"], each["tool_call_id"]) for each in drafts} == {("report", "call_1_0")}
    said = [frame.data.get("event_kind") for frame in seen if frame.n > 0]
    assert said[said.index("function_tool_call") : said.index("function_tool_result") + 1] == [
        "function_tool_call",
        *["custom"] * 3,
        "function_tool_result",
    ]
    assert {frame.kind for frame in seen if frame.data.get("event_kind") == "custom"} == {"draft"}
    facts = [frame.data for frame in seen if frame.kind == "fact"]
    assert "progress" not in str(facts)
    assert of_kind(facts, "run_ended")[0]["status"] == "completed"


async def test_a_tool_that_is_still_at_it_has_told_already_how_far_it_has_come(
    bench: Bench, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    receipt = await bench.send(f'call report {{"total": 4, "gate": "{gate}"}}')
    told: list[int] = []
    async for delivery in bench.runner.watch(receipt.thread, by=ME, after="start", kinds={"draft"}):
        if delivery.frame.kind == "draft":
            told.append(delivery.frame.data["done"])
        if told == [1, 2]:
            # It goes on only now: what it told did not wait for its end.
            gate.touch()
        if len(told) == 4:
            break
    assert told == [1, 2, 3, 4]
    await bench.idle(receipt.thread)


@pytest.mark.parametrize(
    ("make", "omitted"),
    [(object, "not JSON"), (lambda: "x" * 10_000_000, "too large")],
    ids=["odd", "huge"],
)
async def test_an_event_that_cannot_be_shown_does_not_fail_its_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, make: Callable[[], object], omitted: str
) -> None:
    async def odd(ctx: RunContext[None]) -> str:
        await ctx.emit(AnythingEvent(thing=make()))
        return "fine"

    host(bench, monkeypatch, Hosted(Agent(scripted_model(), tools=[odd])))
    seen = await frames(bench, "call odd")
    assert [frame.data["omitted"] for frame in seen if frame.kind == "draft"] == [omitted]
    assert [frame for frame in seen if frame.kind == "gap"] == []
    facts = [frame.data for frame in seen if frame.kind == "fact"]
    assert of_kind(facts, "run_ended")[0]["status"] == "completed"
    assert of_kind(facts, "tool_returned")[0]["result"] == "fine"


async def test_events_for_the_applications_own_handlers_stay_in_its_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whisper(ctx: RunContext[None]) -> str:
        await ctx.emit(BackstageEvent(secret="hush"))
        return "said nothing"

    host(bench, monkeypatch, Hosted(Agent(scripted_model(), tools=[whisper])))
    seen = await frames(bench, "call whisper")
    assert "hush" not in str(seen)
    assert {frame.kind for frame in seen} - {"head"} == {"fact", "attempt", "event", "end"}


class Noting(AbstractCapability[Any]):
    """A capability that tells something of its own."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Say so before each request."""
        await ctx.emit(NoteEvent(text="about to ask"))
        return request_context


async def test_events_of_capabilities_stay_events(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    host(bench, monkeypatch, Hosted(Agent(scripted_model(), capabilities=[Noting()])))
    seen = await frames(bench, "say hello")
    noted = [frame for frame in seen if frame.data.get("text") == "about to ask"]
    assert {frame.kind for frame in noted} == {"event"}
    assert noted


@pytest.mark.parametrize("chosen", [{"fact"}, {"draft"}, {"event"}, {"fact", "draft"}])
async def test_a_watch_shows_the_kinds_that_were_asked_for_and_where_it_stands(
    bench: Bench, chosen: set[Any]
) -> None:
    seen = await frames(bench, 'call report {"total": 2} ;; say done', kinds=chosen)
    live = {"attempt"} if chosen & {"event", "draft"} else set()
    assert {frame.kind for frame in seen} - {"head"} == chosen | live | {"end"}
    whole = await bench.idle(seen[0].thread)
    if "fact" in chosen:
        assert kinds([frame.data for frame in seen if frame.kind == "fact"]) == kinds(whole)


@pytest.mark.parametrize("chosen", [[], ["gap"], ["fact", "head"], "fact", ["facts"]])
async def test_kinds_that_cannot_be_chosen_are_refused(bench: Bench, chosen: Any) -> None:
    with pytest.raises(InvalidInput, match="fact, event, draft") as refused:
        await anext(aiter(bench.runner.watch("t", by=ME, kinds=chosen)))
    assert refused.value.data == {"field": "kinds", "known": ["fact", "event", "draft"]}
