"""Waits that go wrong, on a desk that does what a test says: what was accepted is never lost."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import mcp.types as types
import pytest

from tests.http.records import NOW, request_of, run_of
from tests.mcp.test_view import begun, fact, frame, more
from threadhold.adapters.mcp import schemas, tools, waiting
from threadhold.adapters.mcp.call import Call
from threadhold.adapters.mcp.desk import Desk, Seen
from threadhold.adapters.mcp.view import View
from threadhold.fanout.frame import Frame
from threadhold.runner.errors import Unavailable
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Outcome, Receipt, Request, Run, Thread

RUN = "run-1"


@dataclass
class ScriptedDesk:
    """Accepts everything; its watches show frames, then fail or go on for ever."""

    frames: list[Frame] = field(default_factory=list)
    error: Exception | None = None
    sending: asyncio.Event = field(default_factory=asyncio.Event)
    may_send: asyncio.Event = field(default_factory=asyncio.Event)
    slow_s: float = 0.0
    every_s: float = 0.0
    sent: int = 0
    watching: int = 0

    async def agents(self) -> list[str]:
        """Return one."""
        return ["only"]

    async def send(self, thread: str | None, content: str, **given: Any) -> Receipt:
        """Accept a message when the test lets it."""
        assert given["agent"] == "only"
        self.sending.set()
        await self.may_send.wait()
        self.sent += 1
        return Receipt(
            thread="t", disposition="started", message="m", run=RUN, seq=1, duplicate=False, no_worker=True
        )

    async def answer(self, request: str, decision: Any, **given: Any) -> Outcome:
        """Accept an answer."""
        return Outcome(
            request=request, thread="t", run=RUN, decision=decision.data(), by="ada", duplicate=False, open=0,
            status=RunStatus.PENDING, seq=1,
        )  # fmt: skip

    async def run(self, run: str) -> Run:
        """Return a run that has not begun."""
        if self.error:
            raise self.error
        return run_of(run, thread="t", status=RunStatus.PENDING)

    async def thread(self, thread: str) -> Thread:
        """Return a busy thread; like any desk it lets others go on meanwhile."""
        await asyncio.sleep(0)
        return Thread(
            id=thread, workspace="w", owner="ada", agent="only", title=None, metadata={}, state="busy",
            status="active", current_run=RUN, seq=1, created_at=NOW, updated_at=NOW,
        )  # fmt: skip

    async def watch(self, thread: str, **given: Any) -> AsyncGenerator[Seen, None]:
        """Show the frames."""
        self.watching += 1
        try:
            await asyncio.sleep(self.slow_s)
            for each in self.frames:
                await asyncio.sleep(self.every_s)
                yield Seen(each, f"{each.seq}-1-{each.n}")
            if self.error:
                raise self.error
            await asyncio.Event().wait()
        finally:
            self.watching -= 1


@dataclass
class Session:
    """A host that only listens."""

    told: list[tuple[float, str]] = field(default_factory=list)
    client_capabilities: Any = None

    async def report_progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Keep what was told."""
        self.told.append((progress, message))


def call_on(desk: ScriptedDesk, session: Session | None = None, *, version: str = "2026-07-28") -> Call:
    """Return a call."""
    ctx = SimpleNamespace(session=session or Session(), protocol_version=version, request_id=1)
    params = types.CallToolRequestParams(name="any", arguments={})
    return Call(desk=cast(Desk, desk), drain=asyncio.Event(), ctx=cast(Any, ctx), params=params)


def values(result: tools.ToolResult) -> dict[str, Any]:
    """Return the values of a result that is no error."""
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error
    return cast(dict[str, Any], result.structured_content)


async def test_a_message_that_was_accepted_is_told_although_watching_failed() -> None:
    desk = ScriptedDesk(error=Unavailable("the database is away"))
    desk.may_send.set()
    sent = values(await tools.send(call_on(desk), schemas.Send(content="hi")))
    assert (sent["message"], sent["run"], sent["status"]) == ("m", RUN, "pending")
    assert (sent["cursor"], sent["note"]) == ("1-0-0", "unavailable: the database is away")
    assert desk.sent == 1


async def test_an_answer_that_was_accepted_is_told_although_watching_failed() -> None:
    desk = ScriptedDesk(frames=[fact(2, "attempt_started")], error=Unavailable("away"))
    answered = values(await tools.answer(call_on(desk), schemas.Answer(request="r", kind="approve")))
    assert (answered["request"], answered["status"], answered["note"]) == (
        "r",
        "running",
        "unavailable: away",
    )


async def test_a_watch_has_nothing_else_to_tell_and_fails() -> None:
    desk = ScriptedDesk(error=Unavailable("away"))
    with pytest.raises(Unavailable):
        await tools.watch(call_on(desk), schemas.Watch(thread="t"))


async def test_a_message_on_its_way_is_sent_although_its_sender_has_gone() -> None:
    desk = ScriptedDesk()
    sending = asyncio.create_task(tools.send(call_on(desk), schemas.Send(content="hi")))
    await desk.sending.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    desk.may_send.set()
    async with asyncio.timeout(10):
        while not desk.sent:
            await asyncio.sleep(0)


async def test_whoever_stops_waiting_stops_watching() -> None:
    desk = ScriptedDesk(frames=[begun("a")])
    view = View("t", cursor=None)
    heard = asyncio.Event()

    async def tell(view: View) -> None:
        heard.set()

    waits = waiting.wait(cast(Desk, desk), view, seconds=60, drain=asyncio.Event(), tell=tell)
    task = asyncio.create_task(waits)
    await heard.wait()
    assert desk.watching == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.watching == 0


async def test_much_news_is_told_at_once_and_the_newest_is_never_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However long all of it takes to come, it is not time yet to tell some of it.
    monkeypatch.setattr(waiting, "TELL_EVERY_S", 60.0)
    words = [more(f"{n} ") for n in range(500)]
    end = fact(9, "run_ended", run=RUN, status="completed", output="x")
    desk, session = ScriptedDesk(frames=[begun(""), *words, end]), Session()
    desk.may_send.set()
    sent = values(await tools.send(call_on(desk, session), schemas.Send(content="hi")))
    assert (sent["status"], sent["output"]) == ("completed", "x")
    ((progress, message),) = session.told
    assert (progress, message.endswith(" 499 ")) == (502, True)


async def test_progress_is_bounded_in_size() -> None:
    current = frame("head", 1, {"state": "busy"}, run=None)
    desk, session = ScriptedDesk(frames=[begun("x" * 10_000 + "!"), current]), Session()
    desk.may_send.set()
    await tools.send(call_on(desk, session), schemas.Send(content="hi", wait_s=0.01))
    message = session.told[-1][1]
    assert (len(message), message[0], message[-1]) == (4000, "…", "!")


async def test_no_wait_shows_what_there_is() -> None:
    current = frame("head", 2, {"state": "busy"}, run=None)
    desk = ScriptedDesk(frames=[fact(2, "run_started"), begun("so far", seq=2), current], slow_s=0.2)
    seen = values(await tools.watch(call_on(desk), schemas.Watch(thread="t", wait_s=0)))
    assert (seen["status"], seen["text"], seen["run"]) == ("running", "so far", RUN)


async def test_what_is_caught_up_with_is_told_once() -> None:
    words = [more(f"{n} ") for n in range(5)]
    current = frame("head", 1, {"state": "busy"}, run=None)
    desk, session = ScriptedDesk(frames=[begun(""), *words, current], every_s=0.05), Session()
    await tools.watch(call_on(desk, session), schemas.Watch(thread="t", wait_s=0))
    assert len(session.told) == 1


async def test_what_does_not_come_in_time_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "CATCH_UP_S", 0.01)
    with pytest.raises(Unavailable):
        await waiting.read_through(cast(Desk, ScriptedDesk()), View("t", cursor="1-0-0", run=RUN))


@dataclass
class PausedDesk(ScriptedDesk):
    """Shows other frames once an approval is given."""

    later: list[Frame] = field(default_factory=list)

    async def requests(self, *, thread: str) -> list[Request]:
        """Return the approval."""
        return [request_of("r", kind="approval")]

    async def answer(self, request: str, decision: Any, **given: Any) -> Outcome:
        """Go on."""
        self.frames = self.later
        return await super().answer(request, decision, **given)


class ApprovingSession(Session):
    """A host with a person who approves."""

    async def elicit_form(self, *given: Any, **more: Any) -> types.ElicitResult:
        """Approve."""
        return types.ElicitResult(action="accept", content={"decision": "approve"})


async def test_progress_grows_also_after_a_form_in_between() -> None:
    paused = [begun("a"), more("b"), frame("end", 2, {"state": "paused"}, run=None)]
    ended = fact(3, "run_ended", status="completed", output="x")
    forms = SimpleNamespace(elicitation=SimpleNamespace(form={}, url=None))
    desk, session = PausedDesk(frames=paused, later=[ended]), ApprovingSession(client_capabilities=forms)
    desk.may_send.set()
    sent = values(await tools.send(call_on(desk, session, version="2025-11-25"), schemas.Send(content="hi")))
    assert (sent["status"], sent["output"]) == ("completed", "x")
    counts = [progress for progress, _ in session.told]
    assert (counts, counts[-2:]) == (sorted(set(counts)), [3, 4])
