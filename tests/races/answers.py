"""Answers at random moments around what else settles their request: one decision each, known to everybody alike.

In three ways by turns: two people decide differently at once; the request expires, under a sweeper that never rests;
its run is stopped, also when it goes on already. The first ones of each way are no race: one act comes after the other
has ended, so that either outcome is certain. The judges are the request, the log, what each caller was told, and what
the tool has counted.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tests.races.play import AGENT, CALM, HASTY, Play
from tests.races.stage import BOSS, ME, Aim, Stage, each, kind, surely
from threadhold import Decision, Principal
from threadhold.fanout.frame import Frame
from threadhold.runner.errors import AlreadyAnswered, RequestClosed, Unavailable
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Outcome, Receipt, StopReceipt

Way = Literal["two people", "its expiry", "a stop"]
Told = Outcome | AlreadyAnswered | RequestClosed | StopReceipt | None
Act = Callable[[], Awaitable[Told]]

WAYS: Final[tuple[Way, ...]] = ("two people", "its expiry", "a stop")
OUTCOMES: Final = {
    "two people": {"approve", "reject"},
    "its expiry": {"approve", "reject", "expired"},
    "a stop": {"approve", "reject", "cancelled"},
}
"""What may stand on record in the end, by the way."""
CERTAIN: Final = 4
"""So many of each way come in order: one decision and the other, each before and after what it meets."""
NO: Final = "no, thank you"
WAIT_S: Final = 60.0
LEAD_S: Final = 0.02
SWEEP_S: Final = 0.002


@dataclass
class Tally:
    """What was decided, by the way, and what came of it."""

    aims: dict[Way, Aim]
    ends: Aim
    decided: Counter[tuple[Way, str, str]] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    kept: dict[str, Any] = field(default_factory=dict)
    ran: Counter[str] = field(default_factory=Counter)

    def report(self) -> list[str]:
        """Say it for people."""
        asked = self.decided.total()
        ways = sorted(self.decided.items())
        told = ", ".join(f"{what} {times}" for what, times in sorted(self.told.items()))
        return [
            f"answers against {', '.join(WAYS)}: {asked} requests",
            *(f"  {way:12} -> {decision:10} run {status:10} {n:5}" for (way, decision, status), n in ways),
            f"{asked} request_answered, one each; callers were told: {told}",
            f"approved calls ran once: {self.ran['once']}; approved, and stopped then: {self.ran['stopped late']} "
            f"ran once, {self.ran['stopped early']} did not; all others never: {self.ran['never']}",
            f"{self.aims['its expiry'].within(0.005)} answers came in the last 5 ms before the request expired",
            "read again at the end: no decision has changed",
        ]


@dataclass(frozen=True)
class Asked:
    """A run that waits for an approval, and when somebody began to answer."""

    play: Play
    first: Receipt
    request: str
    expires_at: datetime | None
    begun: list[datetime] = field(default_factory=list)


async def answers(stage: Stage, *, count: int) -> Tally:
    """Let so many requests be settled, and return how they were."""
    aims = {way: Aim(stage.chance, middle=LEAD_S if way == "its expiry" else 0.002) for way in WAYS}
    tally = Tally(aims, Aim(stage.chance))

    async def trial(number: int) -> None:
        turn, way = divmod(number, len(WAYS))
        await _trial(stage, tally, WAYS[way], turn)

    async with _sweeping(stage):
        await each(range(count), trial)
    for request, answer in tally.kept.items():
        now = await surely(lambda r=request: stage.anybody.request(r, by=ME))  # type: ignore[misc]
        assert (now.status, now.answer, now.answered_by) == answer
    return tally


@asynccontextmanager
async def _sweeping(stage: Stage) -> AsyncIterator[None]:
    """Sweep for as long as the block lasts, far more often than a worker does."""

    async def sweep() -> None:
        while True:
            with suppress(Unavailable):
                await stage.sweep()
            await asyncio.sleep(SWEEP_S)

    async with asyncio.TaskGroup() as group:
        sweeping = group.create_task(sweep())
        yield
        sweeping.cancel()


async def _trial(stage: Stage, tally: Tally, way: Way, turn: int) -> None:
    answer_first = turn < CERTAIN // 2
    # One that is to be answered for sure does not expire before that, however slow the machine.
    agent = AGENT if way != "its expiry" else CALM if answer_first else HASTY
    asked = await _ask(stage, agent)
    decision = Decision.approve() if turn % 2 == 0 else Decision.reject(NO)
    other = Decision.reject(NO) if turn % 2 == 0 else Decision.approve()
    acts: list[Act] = [_answer(stage, asked, decision, stage.chance.choice((ME, BOSS)))]
    match way:
        case "two people":
            acts = [_answer(stage, asked, decision, ME), _answer(stage, asked, other, BOSS)]
        case "its expiry":
            acts.append(_expire(stage, asked))
        case "a stop":
            acts.append(_stop(stage, asked))
    if turn < CERTAIN:
        order = acts if answer_first else acts[::-1]
        told = [await act() for act in order]
    elif way == "a stop" and turn % 4 < 2:
        # This one is aimed at the end of the run that the answer has let go on.
        told = list(await asyncio.gather(acts[0](), _later(acts[1], tally.ends.draw())))
    else:
        told = await asyncio.gather(*_timed(tally.aims[way], way, asked, acts))
    assert await stage.rests(asked.first.thread)
    decided, status = await _judge(stage, tally, way, asked, told)
    assert decided in OUTCOMES[way]
    if turn < CERTAIN:
        outcome = {"two people": other.kind, "its expiry": "expired", "a stop": "cancelled"}[way]
        assert decided == (decision.kind if answer_first else outcome)
    elif way == "a stop" and turn % 4 < 2:
        tally.ends.learn_from(late=status == RunStatus.COMPLETED)
    elif way != "two people":
        tally.aims[way].learn_from(late=decided in ("expired", "cancelled"))


async def _ask(stage: Stage, agent: str) -> Asked:
    """Start a thread whose agent pauses; return its one request as soon as a watcher is told of it."""
    play = Play(ending="approval")
    first = await stage.begin(play, agent=agent)
    async for delivery in stage.anybody.watch(first.thread, by=ME, after="start"):
        data = delivery.frame.data
        if data.get("fact") == "request_opened":
            until = data.get("expires_at")
            return Asked(play, first, str(data["request"]), datetime.fromisoformat(until) if until else None)
    raise AssertionError("a watch without `until` never ends")


def _timed(aim: Aim, way: Way, asked: Asked, acts: list[Act]) -> list[Awaitable[Told]]:
    """Return the acts at the same moment, or so that it falls now here, now there which of them is first."""
    match way:
        case "two people":
            return [act() for act in acts]
        case "its expiry":
            assert asked.expires_at is not None
            left = (asked.expires_at - datetime.now(UTC)).total_seconds()
            return [_later(acts[0], left - LEAD_S + aim.draw()), acts[1]()]
        case "a stop":
            # The aim is at how long the answer may be late and still win.
            return [_later(acts[0], aim.draw()), _later(acts[1], 0.002)]


async def _later(act: Act, seconds: float) -> Told:
    await asyncio.sleep(seconds)
    return await act()


def _answer(stage: Stage, asked: Asked, decision: Decision, who: Principal) -> Act:
    async def act() -> Told:
        asked.begun.append(datetime.now(UTC))
        try:
            return await surely(lambda: stage.anybody.answer(asked.request, decision, by=who))
        except (AlreadyAnswered, RequestClosed) as refused:
            return refused

    return act


def _stop(stage: Stage, asked: Asked) -> Act:
    return lambda: surely(lambda: stage.anybody.stop(run=asked.first.run, by=ME, wait=WAIT_S))


def _expire(stage: Stage, asked: Asked) -> Act:
    """Return when the request is settled: the sweeper does it, if nobody else does."""

    async def act() -> None:
        async for delivery in stage.anybody.watch(asked.first.thread, by=ME, after="start"):
            if delivery.frame.data.get("fact") == "request_answered":
                return

    return act


async def _judge(stage: Stage, tally: Tally, way: Way, asked: Asked, told: list[Told]) -> tuple[str, str]:
    """Demand one decision, known to all alike and carried out as it says; return it and how the run has ended."""
    facts = await stage.facts(asked.first.thread)
    [answered] = [fact for fact in facts if kind(fact) == "request_answered"]
    request = await surely(lambda: stage.anybody.request(asked.request, by=ME))
    assert answered.data["request"] == request.id
    decided, by = answered.data["decision"], answered.data["by"]
    if answered.data.get("reason") == "expired":
        assert (decided, by) == ("reject", "system")
        decided = "expired"
    if decided == "cancelled":
        assert (request.status, request.answer) == ("cancelled", None)
    else:
        assert request.status == ("answered" if decided == "approve" else "denied")
        assert (request.answered_by, (request.answer or {})["kind"]) == (by, answered.data["decision"])
    if asked.expires_at is not None:
        miss = (datetime.fromisoformat(answered.at) - asked.expires_at).total_seconds()
        # What the system says comes from then on; what people say counts only if they began before.
        assert miss >= 0 if decided == "expired" else min(asked.begun) < asked.expires_at
        tally.aims[way].misses += [miss] if decided != "expired" else []
    status = await _carried_out(stage, tally, asked, facts, decided)
    for one in told:
        tally.told[_agrees(one, request.answer, by, decided, status)] += 1
    # Who was told that it is decided so has decided so: exactly one, unless nobody did.
    assert sum(isinstance(one, Outcome) for one in told) == (decided in ("approve", "reject"))
    tally.decided[way, decided, status] += 1
    tally.kept[request.id] = (request.status, request.answer, request.answered_by)
    return decided, status


def _agrees(told: Told, answer: dict[str, Any] | None, by: str, decided: str, status: str) -> str:
    """Demand that what a caller was told is what is on record; return what it was."""
    match told:
        case Outcome():
            assert (told.decision, told.by, told.open, told.duplicate) == (answer, by, 0, False)
            return "decided"
        case AlreadyAnswered():
            assert (told.data["decision"], told.data["by"]) == (answer, by)
            return "decided before"
        case RequestClosed():
            reasons = {"expired": "its time is over", "cancelled": "its run has ended"}
            assert told.data["why"] == reasons[decided]
            return reasons[decided]
        case StopReceipt():
            assert (told.settled, told.status) == (True, status)
            return f"stop: {status}"
        case None:
            return "expiry awaited"


async def _carried_out(stage: Stage, tally: Tally, asked: Asked, facts: list[Frame], decided: str) -> str:
    """Demand that the run went on or ended as was decided, and its call ran once or never; return its status."""
    run = await surely(lambda: stage.anybody.run(str(asked.first.run), by=ME))
    [end] = [fact for fact in facts if kind(fact) == "run_ended"]
    assert (end.run, end.data["status"]) == (run.id, run.status)
    stopped = run.status == RunStatus.STOPPED
    assert stopped == any(kind(fact) == "stop_requested" for fact in facts)
    assert stopped or run.status == RunStatus.COMPLETED
    assert asked.play.refused == []
    done = asked.play.done
    if decided != "approve":
        assert done == 0
        tally.ran["never"] += 1
    elif stopped:
        # It was stopped before the call or behind it; one that ran is on record as called.
        assert done <= sum(kind(fact) == "tool_called" for fact in facts) <= 1
        tally.ran["stopped late" if done else "stopped early"] += 1
    else:
        assert done == 1
        tally.ran["once"] += 1
    shown = {"approve": "done as allowed", "reject": NO, "expired": "expired"}
    if not stopped:
        assert asked.play.results == {shown[decided]}
    return str(run.status)
