"""Stops at random moments around the end of a run: each run ends once, as the one thing that everybody is told.

The first ones are no race: in each way, one comes while the run cannot end and one after it has ended, so that either
outcome is certain.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.races.play import Play
from tests.races.stage import ME, Aim, Stage, each, kind, surely
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Receipt, StopReceipt

Way = Literal["run", "thread", "twice at once", "without waiting"]
WAYS: Final[tuple[Way, ...]] = ("run", "thread", "twice at once", "without waiting")
OUTCOMES: Final = (RunStatus.STOPPED, RunStatus.COMPLETED)
WAIT_S: Final = 60.0


@dataclass
class Tally:
    """How the runs ended, by the way in which they were stopped."""

    aim: Aim
    ended: Counter[tuple[Way, str]] = field(default_factory=Counter)
    kept: dict[str, RunStatus] = field(default_factory=dict)
    retried: int = 0
    idle: int = 0

    def outcomes(self) -> Counter[str]:
        """Count the runs by how they ended."""
        counted: Counter[str] = Counter()
        for (_, status), times in self.ended.items():
            counted[status] += times
        return counted

    def report(self) -> list[str]:
        """Say it for people."""
        outcomes = self.outcomes()
        return [
            f"stops against the end of {outcomes.total()} runs",
            *(f"  {way:16} -> {status:10} {n:5}" for (way, status), n in sorted(self.ended.items())),
            f"{' + '.join(f'{status} {n}' for status, n in sorted(outcomes.items()))} = {outcomes.total()}",
            f"{self.retried} stops of a thread repeated during its next run, which went on ({self.idle} had found "
            "the thread idle)",
            "read again at the end: no outcome has changed",
        ]


async def stops(stage: Stage, *, count: int) -> Tally:
    """Stop so many runs as they end, and return how they ended."""
    tally = Tally(Aim(stage.chance))

    async def trial(number: int) -> None:
        turn, way = divmod(number, len(WAYS))
        await _trial(stage, tally, WAYS[way], OUTCOMES[turn] if turn < len(OUTCOMES) else None)

    await each(range(count), trial)
    for run, status in tally.kept.items():
        assert (await surely(lambda r=run: stage.anybody.run(r, by=ME))).status == status  # type: ignore[misc]
    assert set(tally.outcomes()) <= set(OUTCOMES)
    return tally


async def _trial(stage: Stage, tally: Tally, way: Way, certain: RunStatus | None) -> None:
    """Stop one run, at a random moment or so that the outcome is certain."""
    stays = certain == RunStatus.STOPPED
    play = Play(linger=stage.chance.uniform(0.0, 0.01), stays=stays, held=way == "thread")
    first = await stage.begin(play)
    await play.cue.wait()
    if certain is None:
        await asyncio.sleep(tally.aim.draw())
    elif certain == RunStatus.COMPLETED:
        await _ended(stage, first)
    receipts = await _stop(stage, way, first)
    if stays:
        play.let_go.set()
    await stage.finish(first.thread)
    status = await _judge(stage, first, receipts)
    if certain is None:
        tally.aim.learn_from(late=status == RunStatus.COMPLETED)
    else:
        assert status == certain
    tally.ended[way, status] += 1
    tally.kept[str(first.run)] = status
    if way == "thread":
        play.let_go.clear()
        await _stop_again(stage, tally, play, first, receipts[0])


async def _ended(stage: Stage, first: Receipt) -> None:
    """Return when a watcher has seen the end of the run."""
    async for delivery in stage.anybody.watch(first.thread, by=ME, after="start"):
        if delivery.frame.data.get("fact") == "run_ended":
            return


async def _stop(stage: Stage, way: Way, first: Receipt) -> list[StopReceipt]:
    run, thread = first.run, first.thread
    match way:
        case "run":
            return [await surely(lambda: stage.anybody.stop(run=run, by=ME, wait=WAIT_S))]
        case "thread":
            return [await surely(lambda: stage.anybody.stop(thread=thread, by=ME, key="s", wait=WAIT_S))]
        case "without waiting":
            return [await surely(lambda: stage.anybody.stop(run=run, by=ME, wait=0.0))]
        case "twice at once":
            one, other = stage.replicas
            both = await asyncio.gather(
                surely(lambda: one.stop(run=run, by=ME, wait=WAIT_S)),
                surely(lambda: other.stop(thread=thread, by=ME, key="s", wait=WAIT_S)),
            )
            return list(both)


async def _judge(stage: Stage, first: Receipt, receipts: list[StopReceipt]) -> RunStatus:
    """Demand one end, known to all alike, and return it."""
    run = await surely(lambda: stage.anybody.run(str(first.run), by=ME))
    facts = await stage.facts(first.thread)
    [end] = [fact for fact in facts if kind(fact) == "run_ended"]
    asked = [fact for fact in facts if kind(fact) == "stop_requested"]
    assert (end.run, end.data["status"], end.data.get("reason")) == (run.id, run.status, run.reason)
    assert run.status in OUTCOMES
    # A run that had ended was not asked any more; one that was asked has ended as stopped.
    assert bool(asked) == (run.status == RunStatus.STOPPED)
    assert all(fact.seq < end.seq for fact in asked)
    [closed] = [fact for fact in facts if kind(fact) == "attempt_closed"]
    assert closed.data["outcome"] == run.status
    for receipt in receipts:
        _agrees(receipt, run.id, run.status, alone=len(receipts) == 1)
    return run.status


def _agrees(receipt: StopReceipt, run: str, status: RunStatus, *, alone: bool) -> None:
    """Demand that what the caller was told is what happened."""
    if receipt.run is None:
        # The stop of a thread that was idle by then: its run had ended, by itself or by the other stop.
        assert receipt.settled
        assert not alone or status == RunStatus.COMPLETED
    elif receipt.settled:
        assert (receipt.run, receipt.status) == (run, status)
    else:
        # It was told only that the stop is on record.
        assert (receipt.run, status) == (run, RunStatus.STOPPED)


async def _stop_again(stage: Stage, tally: Tally, play: Play, first: Receipt, receipt: StopReceipt) -> None:
    """Repeat the stop of a thread with its key while the thread's next run is at work."""
    sent = await surely(lambda: stage.anybody.send(first.thread, "go on", by=ME, key="next"))
    assert (sent.disposition, sent.run != first.run) == ("started", True)
    again = await surely(lambda: stage.anybody.stop(thread=first.thread, by=ME, key="s", wait=0.0))
    assert (again.run, again.settled, again.status) == (receipt.run, True, receipt.status)
    play.let_go.set()
    await stage.finish(first.thread)
    run = await surely(lambda: stage.anybody.run(str(sent.run), by=ME))
    assert (run.status, run.stop_requested) == (RunStatus.COMPLETED, False)
    tally.retried += 1
    tally.idle += receipt.run is None
