"""Tools with credentials: who gets which, for how long, and that what they hold is told to nobody."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import DocumentUrl, TextPart, ToolReturn, ToolReturnPart

from tests.runner.conftest import ME, Bench, of_kind
from tests.runner.test_execution import parts
from tests.runner.test_unruly_agents import host
from tests.support.scripted import scripted_model
from threadhold import Binding, Hosted, Rejection, RunIdentity, credential
from threadhold.runner.carrying import Carried, carried_out
from threadhold.runner.credentials import PROCESS, VALUES_MAX, Learned, Secrets, present_secrets
from threadhold.runner.errors import NoCredential, RunFailure
from threadhold.runner.returned import FILE_BYTES_MAX, RETURNED_CHARS_MAX, cleaned
from threadhold.runner.scrubbing import MARKER

HUSH = "hush-4711-hush"
KEY = "ghp_" + "Ab3d" * 9
IDENTITY = RunIdentity(principal=ME, workspace="home", thread="t", run="r", attempt=1, fence=1, memory=())
BOUND = Binding(credentials="github")


def secrets() -> Secrets:
    return Secrets({"github": lambda identity: HUSH}, IDENTITY)


async def carry(act: Callable[[], Awaitable[Any]], binding: Binding = BOUND) -> Carried:
    with secrets() as known:
        return await carried_out(act, binding=binding, secrets=known)


async def carry_result(result: Any) -> Any:
    async def act() -> Any:
        return result

    carried = await carry(act)
    assert carried.outcome == "ok"
    return carried.result


async def test_a_tool_reads_its_credential_and_nobody_else_does() -> None:
    async def act() -> str:
        assert credential() == HUSH
        return await asyncio.to_thread(lambda: f"in a thread {credential()}")

    assert (await carry(act)).result == f"in a thread {MARKER}"
    with pytest.raises(NoCredential, match="has no credentials"):
        credential()


async def test_a_tool_that_is_called_within_another_has_not_its_credential() -> None:
    async def inner() -> str:
        return credential()

    async def outer() -> str:
        carried = await carried_out(inner, binding=Binding(), secrets=present_secrets())
        assert credential() == HUSH
        return str(carried.type)

    assert (await carry(outer)).result == "NoCredential"


async def test_the_secret_is_asked_for_anew_for_each_call_and_for_whom_it_acts() -> None:
    asked: list[RunIdentity] = []

    async def resolve(identity: RunIdentity) -> str:
        asked.append(identity)
        return f"{HUSH}-{len(asked)}"

    async def act() -> bool:
        return credential() == f"{HUSH}-{len(asked)}"

    with Secrets({"github": resolve}, IDENTITY) as known:
        assert [(await carried_out(act, binding=BOUND, secrets=known)).result for _ in range(2)] == [
            True,
            True,
        ]
        assert known.scrubber.text(f"{HUSH}-1 {HUSH}-2") == f"{MARKER} {MARKER}"
    assert asked == [IDENTITY] * 2


@pytest.mark.parametrize(
    ("resolver", "type", "text"),
    [
        (lambda identity: 1 / 0, "ZeroDivisionError", "division by zero"),
        (lambda identity: None, "RunFailure", "credentials 'github' are not text"),
        (lambda identity: "", "RunFailure", "credentials 'github' are not text"),
    ],
)
async def test_a_resolver_that_fails_fails_the_call(resolver: Any, type: str, text: str) -> None:
    async def act() -> str:
        raise AssertionError("the tool has run")

    with Secrets({"github": resolver}, IDENTITY) as known:
        carried = await carried_out(act, binding=BOUND, secrets=known)
    assert (carried.outcome, carried.type, carried.error) == ("failed", type, text)


async def test_what_a_resolver_raises_is_scrubbed() -> None:
    def resolve(identity: RunIdentity) -> str:
        raise LookupError(f"vault said no to {KEY}")

    async def act() -> str:
        return credential()

    with Secrets({"github": resolve}, IDENTITY) as known:
        carried = await carried_out(act, binding=BOUND, secrets=known)
    assert (carried.type, carried.error) == ("LookupError", f"vault said no to {MARKER}")
    assert isinstance(carried.raised, RunFailure)
    assert carried.raised.reason == "LookupError"


def test_values_are_known_to_the_process_until_the_attempt_ends_and_not_without_bound() -> None:
    mine = "only here and now"
    with secrets() as known, secrets() as other:
        known.learn(mine)
        other.learn(mine)
        for number in range(VALUES_MAX):
            known.learn(f"value number {number:04}")
        assert known.known_only.text(mine) == mine
        assert PROCESS.text(mine) == MARKER
    assert PROCESS.text(f"{mine} value number 0001") == f"{mine} value number 0001"


async def test_no_value_is_forgotten_that_a_call_still_has() -> None:
    count, gate, begun = VALUES_MAX + 44, asyncio.Event(), 0

    async def act() -> str:
        nonlocal begun
        begun += 1
        if begun == count:
            gate.set()
        await gate.wait()
        return credential()

    values = (f"value number {number:04}" for number in range(count))
    with Secrets({"github": lambda identity: next(values)}, IDENTITY) as known:
        calls = [carried_out(act, binding=BOUND, secrets=known) for _ in range(count)]
        assert {carried.result for carried in await asyncio.gather(*calls)} == {MARKER}


async def test_what_a_call_was_given_is_known_to_the_next_calls_of_a_process_that_remembers() -> None:
    learned, kept, mine = Learned(), list[str](), "of a process that remembers"

    async def login() -> None:
        kept.append(credential())

    async def session() -> str:
        return f"with {kept[0]}"

    with Secrets({"github": lambda identity: mine}, IDENTITY, learned=learned) as known:
        await carried_out(login, binding=BOUND, secrets=known)
    with Secrets({}, IDENTITY, learned=learned) as known:
        assert (await carried_out(session, binding=Binding(), secrets=known)).result == f"with {MARKER}"
    assert PROCESS.text(mine) == MARKER
    learned.let_go()
    assert PROCESS.text(mine) == mine


class Model(BaseModel):
    """What a tool may return."""

    name: str
    token: str


@dataclass
class Data:
    """What a tool may return as well."""

    text: str


@pytest.mark.parametrize(
    ("result", "clean"),
    [
        (f"a {HUSH} b", f"a {MARKER} b"),
        ({"k": [HUSH, 1], HUSH: KEY}, {"k": [MARKER, 1], MARKER: MARKER}),
        (("x", HUSH), ["x", MARKER]),
        (Model(name="n", token="abc"), {"name": "n", "token": MARKER}),
        ([Data(HUSH)], [{"text": MARKER}]),
        ({"n": 1, "t": True, "x": None}, {"n": 1, "t": True, "x": None}),
        ({"token": [HUSH, 1], "password": 123456}, {"token": [MARKER, 1], "password": MARKER}),
    ],
)
async def test_what_a_tool_returns_is_scrubbed(result: Any, clean: Any) -> None:
    assert await carry_result(result) == clean


async def test_what_holds_no_secret_is_returned_as_it_is() -> None:
    for result in (
        {"a": Data("b")},
        [Model(name="n", token="")],
        ToolReturn("x", metadata={"a": 1}),
        5,
        None,
    ):
        assert await carry_result(result) is result


async def test_parts_of_a_rich_result_are_scrubbed_and_stay_what_they_are() -> None:
    file = BinaryContent(
        f"the key is {HUSH}".encode(), media_type="text/plain", identifier=HUSH, vendor_metadata={"k": [KEY]}
    )
    result = await carry_result(
        ToolReturn(
            [file, HUSH], content=[f"see {KEY}", DocumentUrl(f"https://a:{HUSH}@b/c")], metadata={"m": HUSH}
        )
    )
    assert isinstance(result, ToolReturn)
    returned: Any = result.return_value
    shown, text = returned
    assert (shown.data, shown.media_type, text) == (f"the key is {MARKER}".encode(), "text/plain", MARKER)
    assert (shown.identifier, shown.vendor_metadata) == (MARKER, {"k": [MARKER]})
    assert result.content is not None
    assert result.content[0] == f"see {MARKER}"
    assert isinstance(result.content[1], DocumentUrl)
    assert result.content[1].url == f"https://a:{MARKER}@b/c"
    assert result.metadata == {"m": MARKER}
    assert file.data.endswith(HUSH.encode())


def test_what_is_too_large_for_a_model_is_cut_and_says_so() -> None:
    with secrets() as known:
        for huge in ("ä" * 1_000_000, {"rows": ["x" * 1000] * 1000}):
            value, plain = cleaned(huge, known.scrubber)
            assert value == plain
            assert "more characters were left out" in value[RETURNED_CHARS_MAX:]
            assert len(value) < RETURNED_CHARS_MAX + 100
        photo = BinaryContent(b"\xff" * 2_000_000, media_type="image/png")
        assert cleaned(photo, known.scrubber)[0] is photo
        film = BinaryContent(b"\xff" * (FILE_BYTES_MAX + 1), media_type="video/mp4")
        assert "was left out" in cleaned([film], known.scrubber)[0][0]


@pytest.mark.parametrize(
    ("error", "outcome", "type", "raised"),
    [
        (ModelRetry(f"not {HUSH}"), "retry", None, ModelRetry),
        (Rejection(f"not {HUSH}"), "retry", None, ModelRetry),
        (ToolFailed(f"not {HUSH}"), "failed", None, ToolFailed),
        (LookupError(f"not {HUSH}"), "failed", "LookupError", RunFailure),
        (RunFailure(f"not {HUSH}", reason="out"), "failed", "RunFailure", RunFailure),
    ],
)
async def test_what_a_tool_raises_is_scrubbed(
    error: Exception, outcome: str, type: str | None, raised: type[Exception]
) -> None:
    async def act() -> str:
        try:
            raise OSError(f"connection to {HUSH} lost")
        except OSError as cause:
            raise error from cause

    carried = await carry(act)
    assert (carried.outcome, carried.type) == (outcome, type)
    assert carried.error is not None
    assert MARKER in carried.error
    assert isinstance(carried.raised, raised)
    assert HUSH not in str(carried.raised)
    assert carried.raised.__cause__ is carried.raised.__context__ is None


async def test_a_cause_that_tells_a_secret_is_left_out_although_the_error_does_not() -> None:
    async def act() -> str:
        try:
            raise OSError(HUSH)
        except OSError as cause:
            raise LookupError("no such thing") from cause

    carried = await carry(act)
    assert (carried.error, type(carried.raised)) == ("no such thing", RunFailure)


async def test_an_error_without_secrets_stays_what_it_is() -> None:
    mine = LookupError("no such thing")

    async def act() -> str:
        raise mine

    assert (await carry(act)).raised is mine


async def test_a_call_that_takes_too_long_is_cancelled_and_its_effect_unknown() -> None:
    cancelled = asyncio.Event()

    async def act() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    carried = await carry(act, Binding(timeout=timedelta(milliseconds=20)))
    assert (carried.outcome, carried.type, cancelled.is_set()) == ("failed", "tool_timeout", True)
    assert isinstance(carried.raised, ToolFailed)
    assert "may or may not" in str(carried.raised.message)


async def test_a_thread_that_takes_too_long_is_given_up_and_its_result_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadhold.runner.carrying.LETTING_GO_S", 0.01)
    gate = threading.Event()

    async def act() -> str:
        # As a thread does that is waited for whatever comes.
        return await asyncio.shield(waiting)

    waiting = asyncio.ensure_future(asyncio.to_thread(lambda: str(gate.wait())))
    carried = await carry(act, Binding(timeout=timedelta(milliseconds=20)))
    assert carried.type == "tool_timeout"
    gate.set()
    assert await waiting == "True"


async def test_a_run_with_a_credential_from_the_call_to_the_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(ctx: RunContext[None], what: str) -> dict[str, str]:
        """Read something."""
        return {"told": f"{what} by {credential()}", "as": what}

    def bare() -> str:
        """Read what nobody gave it."""
        return credential()

    agent = Agent(scripted_model(), tools=[fetch, bare])
    host(
        bench,
        monkeypatch,
        Hosted(agent, tools={"fetch": BOUND}, credentials={"github": lambda identity: HUSH}),
    )
    script = f'call fetch {{"what": "{HUSH}"}} ;; spell ["so ", "hush-47", "11-hush", " it is"]'
    receipt = await bench.send(script)
    watch = bench.runner.watch(receipt.thread, by=ME, after="start", until="idle")
    frames = [delivery.frame async for delivery in watch]
    facts = [frame.data for frame in frames if frame.kind == "fact"]
    (called,) = of_kind(facts, "tool_called")
    assert called["credentials"] == "github"
    (returned,) = of_kind(facts, "tool_returned")
    assert returned["result"] == {"told": f"{MARKER} by {MARKER}", "as": MARKER}
    assert of_kind(facts, "model_called")[-1]["text"] == f"so {MARKER} it is"
    assert of_kind(facts, "run_ended")[0]["output"] == f"so {MARKER} it is"
    live = [
        frame.data for frame in frames if frame.kind == "event" and frame.data["event_kind"] != "part_delta"
    ]
    after = live[[each["event_kind"] for each in live].index("function_tool_result") :]
    assert HUSH not in str(after)
    deltas = [frame.data["delta"] for frame in frames if frame.data.get("event_kind") == "part_delta"]
    assert MARKER in "".join(delta.get("content_delta") or "" for delta in deltas)
    history = await bench.history(receipt.thread)
    assert parts(history, TextPart)[-1].content == f"so {MARKER} it is"
    assert parts(history, ToolReturnPart)[0].content == returned["result"]
    run = await bench.run(await bench.send("call bare"))
    assert run.error is not None
    assert run.error["type"] == "no_credential"


async def test_a_tool_that_times_out_is_told_to_the_model_and_the_run_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forever() -> None:
        """Take too long."""
        await asyncio.Event().wait()

    limits = {"forever": Binding(timeout=timedelta(milliseconds=50))}
    host(bench, monkeypatch, Hosted(Agent(scripted_model(), tools=[forever]), tools=limits))
    facts = await bench.ask("call forever ;; say well")
    (returned,) = of_kind(facts, "tool_returned")
    assert (returned["outcome"], returned["type"]) == ("failed", "tool_timeout")
    assert of_kind(facts, "run_ended")[0]["output"] == "well"
