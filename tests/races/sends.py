"""Messages at random moments around the end of a run and around a pause: where did each of them go?

Every message that was accepted either started a run, came along at a start, was shown to a run in progress, was the
reply to a pause, or was returned with a reason. The judges are the receipts, the model (what it was shown) and the
stored conversation, besides the log.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart

from tests.races.play import PLAYS, Ending, Play
from tests.races.stage import ME, Aim, Stage, each, kind, seconds_between, surely
from tests.support.histories import texts
from threadhold import Runner
from threadhold.fanout.frame import Frame
from threadhold.runner.errors import ThreadBusy
from threadhold.runner.records import Message, OnBusy, Receipt

Fate = Literal["started", "came along", "consumed", "replied", "replied, told later", "returned"]

ENDINGS: Final[tuple[Ending, ...]] = ("end", "end", "question", "approval")
WAYS: Final[tuple[OnBusy, ...]] = ("steer", "steer", "steer", "queue", "interrupt", "reject")
LATE_MAX: Final = 4
# What the late messages are aimed at.
MOMENTS: Final = ("run_ended", "paused")


@dataclass
class Tally:
    """What became of all messages."""

    aim: Aim
    threads: int = 0
    runs: int = 0
    empty: int = 0
    late: int = 0
    followed: int = 0
    refused: int = 0
    repeated: int = 0
    stops: int = 0
    became: Counter[tuple[str, Fate]] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        """How many messages were accepted."""
        return self.threads + self.late + self.followed

    def fates(self) -> Counter[str]:
        """Count the messages by what became of them."""
        counted: Counter[str] = Counter()
        for (_, fate), times in self.became.items():
            counted[fate] += times
        return counted

    def report(self) -> list[str]:
        """Say it for people."""
        fates = self.fates()
        near = ", ".join(f"{self.aim.within(s)} within {s * 1e3:g} ms" for s in (0.001, 0.005, 0.02))
        return [
            f"{self.sent} messages accepted ({self.late} late) on {self.threads} threads, {self.runs} runs started",
            f"{self.empty} of them stopped before they were shown anything",
            f"{self.refused} refused as asked for, {self.repeated} sent twice at once, {self.stops} stops",
            f"aimed at the end of a run or a pause: {near} of that moment",
            *(f"  {told:8} -> {fate:19} {n:6}" for (told, fate), n in sorted(self.became.items())),
            f"{' + '.join(f'{fate} {n}' for fate, n in sorted(fates.items()))} = {fates.total()}, sent = {self.sent}",
        ]


@dataclass
class Trial:
    """One thread: its agent, and what was sent to it."""

    stage: Stage
    tally: Tally
    play: Play
    first: Receipt
    accepted: dict[str, Receipt] = field(default_factory=dict)
    followed: dict[str, Receipt] = field(default_factory=dict)

    async def send_late(self, number: int) -> None:
        """Send one message at a random moment; sometimes twice at once, over both replicas."""
        chance = self.stage.chance
        way = chance.choice(WAYS)
        await self.play.cue.wait()
        await asyncio.sleep(self.tally.aim.draw())
        runners = self.stage.replicas if chance.random() < 0.1 else (self.stage.anybody,)
        await self.send(number, way, runners)

    async def send(self, number: int, way: OnBusy, runners: Sequence[Runner]) -> None:
        """Send one message over each of these replicas at once."""
        thread = self.first.thread
        content = f"late {number} to {thread}"
        calls = [
            surely(lambda r=runner: r.send(thread, content, by=ME, key=content, on_busy=way))  # type: ignore[misc]
            for runner in runners
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        receipts = [answer for answer in answers if isinstance(answer, Receipt)]
        # A refused message leaves nothing behind: if the thread came to rest in between, its other call was accepted.
        refusals = [answer for answer in answers if isinstance(answer, ThreadBusy)]
        assert len(receipts) + len(refusals) == len(runners), answers
        if not receipts:
            self.tally.refused += 1
            return
        assert len({(receipt.message, receipt.disposition) for receipt in receipts}) == 1
        assert [receipt.duplicate for receipt in receipts].count(False) == 1
        self.tally.repeated += len(receipts) - 1
        self.accepted[content] = receipts[0]

    def untold(self) -> list[str]:
        """Return the replies that the model has not been told of."""
        replies = [content for content, receipt in self.accepted.items() if receipt.disposition == "replied"]
        return [content for content in replies if content not in self.play.results]

    async def stop_late(self) -> None:
        """Stop whatever runs, at a random moment."""
        await self.play.cue.wait()
        await asyncio.sleep(self.tally.aim.draw())
        await self.stop()

    async def stop(self) -> None:
        """Stop whatever runs."""
        self.tally.stops += 1
        await surely(lambda: self.stage.anybody.stop(thread=self.first.thread, by=ME, key="stop", wait=0.0))


async def sends(stage: Stage, *, count: int) -> Tally:
    """Send so many late messages, judge each thread when it is idle, and return the tally."""
    tally = Tally(Aim(stage.chance))

    async def trial(_: int) -> None:
        if tally.late < count:
            await _trial(stage, tally)

    await _returned(stage, tally)
    await each(range(count), trial)
    assert tally.fates().total() == tally.sent
    assert tally.fates()["started"] == tally.runs - tally.empty
    return tally


async def _returned(stage: Stage, tally: Tally) -> None:
    """Let a message wait for a run that goes on until it is stopped, so that it is returned for certain."""
    play = Play(stays=True)
    trial = Trial(stage, tally, play, await stage.begin(play))
    await play.cue.wait()
    await trial.send(0, "queue", [stage.anybody])
    await trial.stop()
    play.let_go.set()
    await stage.finish(trial.first.thread)
    await judge(trial)
    assert tally.fates() == {"started": 1, "returned": 1}


async def _trial(stage: Stage, tally: Tally) -> None:
    chance = stage.chance
    play = Play(ending=chance.choice(ENDINGS), linger=chance.uniform(0.0, 0.01))
    first = await stage.begin(play)
    trial = Trial(stage, tally, play, first)
    late = [trial.send_late(number) for number in range(chance.randint(1, LATE_MAX))]
    stops = [trial.stop_late()] if chance.random() < 0.1 else []
    await asyncio.gather(*late, *stops)
    await stage.finish(first.thread)
    if trial.untold():
        # The run was stopped before it went on; whichever comes next is told.
        trial.followed["next"] = await surely(
            lambda: stage.anybody.send(first.thread, "next", by=ME, key="next")
        )
        await stage.finish(first.thread)
    tally.aim.learn(await judge(trial))


async def judge(trial: Trial) -> list[float]:
    """Demand that each message of a thread went exactly one way, and that all who know of it agree.

    Returns:
        By how many seconds each late message fell behind the nearest end or pause.
    """
    stage, tally, thread = trial.stage, trial.tally, trial.first.thread
    facts, history = await asyncio.gather(stage.facts(thread), stage.history(thread))
    assert trial.untold() == []
    accepted = {fact.data["content"]: fact for fact in facts if kind(fact) == "message_accepted"}
    name = next(content for content, play in PLAYS.items() if play is trial.play)
    receipts = {name: trial.first, **trial.accepted, **trial.followed}
    assert sorted(accepted) == sorted(receipts), "what is on the log is what was acknowledged"
    assert trial.play.refused == []
    for content, receipt in receipts.items():
        message = await surely(lambda r=receipt: stage.anybody.message(r.message, by=ME))  # type: ignore[misc]
        fate = fate_of(message, facts)
        if fate == "replied" and content not in texts(history, ToolReturnPart):
            assert "stopped" in [fact.data.get("status") for fact in facts if fact.run == message.run]
            fate = "replied, told later"
        check(content, fate, message, history, trial.play)
        tally.became[receipt.disposition, fate] += 1
    tally.threads += 1
    tally.late += len(trial.accepted)
    tally.followed += len(trial.followed)
    begun = {fact.run for fact in facts if kind(fact) == "run_started"}
    shown = {fact.run for fact in facts if kind(fact) == "message_delivered"}
    ended = {fact.run: fact.data["status"] for fact in facts if kind(fact) == "run_ended"}
    assert all(ended[run] == "stopped" for run in begun - shown)
    tally.runs += len(begun)
    tally.empty += len(begun - shown)
    moments = [fact for fact in facts if kind(fact) in MOMENTS]
    return [_miss(accepted[content], moments) for content in trial.accepted]


def fate_of(message: Message, facts: list[Frame]) -> Fate:
    """Return where a message went, by the log; the message's own state must agree.

    Those that a start consumes stand right behind the `run_started`, oldest first.
    """
    [at] = [
        index
        for index, fact in enumerate(facts)
        if kind(fact) in ("message_delivered", "message_returned") and fact.data["message"] == message.id
    ]
    settled = facts[at]
    assert kind(settled) == f"message_{message.state}"
    if message.state == "returned":
        assert message.reason == settled.data["reason"] == "stopped"
        return "returned"
    assert settled.run == message.run
    if message.disposition == "replied":
        return "replied"
    before = at - 1
    while kind(facts[before]) == "message_delivered" and facts[before].run == settled.run:
        before -= 1
    if kind(facts[before]) == "run_started" and facts[before].run == settled.run:
        return "started" if before == at - 1 else "came along"
    return "consumed"


def check(content: str, fate: Fate, message: Message, history: list[ModelMessage], play: Play) -> None:
    """Demand that the conversation has a message once where it belongs, and that the model never saw it twice."""
    said = Counter(texts(history, UserPromptPart))
    told = Counter(texts(history, ToolReturnPart))
    assert said[content] == (fate in ("started", "came along", "consumed")), (content, fate, history)
    assert told[content] == (fate == "replied"), (content, fate, history)
    assert play.most_shown[content] <= said[content], (content, fate, play.most_shown)
    assert message.content == content


def _miss(accepted: Frame, moments: list[Frame]) -> float:
    """Return how long after the nearest end or pause a message was accepted; negative if before."""
    return min((seconds_between(moment, accepted) for moment in moments), key=abs)
