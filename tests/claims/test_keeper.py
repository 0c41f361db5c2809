"""The keeper: renewals off the main loop, trust that ends in time, and losses that are final."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.waiting import until
from threadhold.claims import Claim, ClaimTimes, Held, Keeper, News, Renewal
from threadhold.claims import keeper as keeper_module

TIMES = ClaimTimes(ttl=15, renew_every=3, margin=2)


@dataclass
class FakeRenewer:
    """A store that answers as the test says, and notes what it was asked, and in which thread."""

    answer: Callable[[Claim], Renewal] = lambda claim: Renewal(claim_id=claim.claim_id, result="renewed")
    before: Callable[[], Any] = lambda: None
    asked: list[list[str]] = field(default_factory=list)
    resets: int = 0
    threads: set[int] = field(default_factory=set)

    async def renew(self, claims: Sequence[Claim]) -> list[Renewal]:
        self.threads.add(threading.get_ident())
        self.asked.append([claim.claim_id for claim in claims])
        waiting = self.before()
        if waiting is not None:
            await waiting
        return [self.answer(claim) for claim in claims]

    async def reset(self) -> None:
        self.resets += 1


@dataclass
class Rig:
    """A keeper with a clock that the test moves."""

    renewer: FakeRenewer
    time: float = 100.0
    losses: list[str] = field(default_factory=list)
    news: list[News] = field(default_factory=list)
    keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.renewer, times=TIMES, clock=lambda: self.time)

    def hold(self, id: str = "c1") -> Held:
        """Hold a claim that was requested now."""
        claim = Claim(thread=f"thread of {id}", claim_id=id, fence=1)
        return self.keeper.hold(claim, began=self.time, on_lost=self.losses.append, on_news=self.news.append)

    async def renewed(self, held: Held) -> None:
        """Renew once, and wait until the store has been asked and has answered."""
        before = len(self.renewer.asked)
        self.keeper.look(held)

        async def asked() -> bool:
            return len(self.renewer.asked) > before

        await until(asked)
        await self.settle()

    async def settle(self) -> None:
        """Let the keeper's thread come to rest and the main loop take what it handed over."""
        loop = self.keeper._loop
        assert loop is not None
        for _ in range(3):
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop))
        await asyncio.sleep(0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A running keeper, closed in the end."""
    made = Rig(FakeRenewer())
    made.keeper.start()

    async def alive() -> bool:
        return bool(made.renewer.asked)

    await until(alive)
    yield made
    await made.keeper.aclose()


async def test_process_says_that_it_lives_without_any_claim(rig: Rig) -> None:
    assert rig.renewer.asked == [[]]


async def test_renewal_moves_the_deadline_from_where_it_began(rig: Rig) -> None:
    held = rig.hold()
    assert held.deadline == 113
    rig.time = 105
    await rig.renewed(held)
    assert held.deadline == 118
    assert rig.renewer.threads != {threading.get_ident()}


async def test_trust_ends_on_the_local_clock(rig: Rig) -> None:
    held = rig.hold()
    rig.time = 112.9
    rig.keeper._check(held)
    assert rig.keeper.trusted(held)
    rig.time = 113
    assert not rig.keeper.trusted(held)
    rig.keeper._check(held)
    assert rig.losses == ["no renewal in time"]


async def test_failed_renewal_is_tried_again_and_is_not_the_end(rig: Rig) -> None:
    held = rig.hold()

    def refuse() -> None:
        raise ConnectionError("down")

    rig.renewer.before = refuse
    rig.time = 104
    await rig.renewed(held)
    assert (held.deadline, rig.losses) == (113, [])
    assert rig.renewer.resets >= 1
    rig.renewer.before = lambda: None
    rig.time = 106
    await rig.renewed(held)
    assert held.deadline == 119


async def test_answer_that_comes_after_trust_has_ended_counts_for_nothing(rig: Rig) -> None:
    held = rig.hold()

    def slow() -> None:
        rig.time = 113.5

    rig.renewer.before = slow
    await rig.renewed(held)
    assert held.deadline == 113
    rig.keeper._check(held)
    assert held.lost


async def test_claim_taken_over_is_lost_once_and_never_renewed_again(rig: Rig) -> None:
    held, other = rig.hold("c1"), rig.hold("c2")
    rig.renewer.answer = lambda claim: Renewal(
        claim_id=claim.claim_id, result="lost" if claim.claim_id == "c1" else "renewed"
    )
    await rig.renewed(held)

    async def lost() -> bool:
        return bool(rig.losses)

    await until(lost)
    await rig.renewed(other)
    assert rig.losses == ["taken over"]
    assert rig.renewer.asked[-1] == ["c2"]


async def test_claim_given_up_meanwhile_is_not_reported_lost(rig: Rig) -> None:
    held = rig.hold()
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result="lost")
    rig.renewer.before = lambda: rig.keeper._held.clear()
    await rig.renewed(held)
    assert rig.losses == []


async def test_locked_row_is_asked_again_at_once(rig: Rig) -> None:
    held = rig.hold()
    answers = iter(["busy", "renewed"])
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result=next(answers))  # type: ignore[arg-type]
    rig.time = 104
    await rig.renewed(held)
    rig.time = 105
    await rig.renewed(held)
    assert held.deadline == 118
    assert rig.losses == []


async def test_news_of_a_stop_and_of_messages_reach_the_holder(rig: Rig) -> None:
    held = rig.hold()
    rig.renewer.answer = lambda claim: Renewal(
        claim_id=claim.claim_id, result="renewed", stop=True, waiting=2
    )
    await rig.renewed(held)

    async def heard() -> list[News]:
        return rig.news

    assert (await until(heard))[0] == News(stop=True, waiting=2)


async def test_trust_ends_after_a_sleep_of_the_machine_that_the_timers_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_module, "TICK_S", 0.01)
    rig = Rig(FakeRenewer())
    rig.keeper.start()
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result="busy")
    held = rig.hold()
    rig.time = 5_000

    async def lost() -> bool:
        return held.lost

    assert await until(lost)
    assert rig.losses == ["no renewal in time"]
    await rig.keeper.aclose()


async def test_dropped_claim_is_not_renewed(rig: Rig) -> None:
    held, other = rig.hold("c1"), rig.hold("c2")
    rig.keeper.drop(held)
    await rig.renewed(other)
    assert rig.renewer.asked[-1] == ["c2"]


async def test_blocked_main_loop_loses_no_claim(rig: Rig) -> None:
    held = rig.hold()
    seen = threading.Event()
    rig.renewer.before = seen.set
    rig.time = 104
    rig.keeper.look(held)
    # The main loop stands still here, as under a tool that never awaits.
    assert seen.wait(10)
    await rig.settle()
    assert held.deadline == 117


async def test_dead_main_loop_gives_its_claims_up(rig: Rig) -> None:
    held = rig.hold()
    assert rig.keeper._ticker is not None
    rig.keeper._ticker.cancel()
    rig.time = 100 + 61
    before = len(rig.renewer.asked)
    rig.keeper.look(held)
    await rig.settle()
    assert len(rig.renewer.asked) == before


async def test_many_claims_are_renewed_in_batches() -> None:
    rig = Rig(FakeRenewer())
    rig.keeper._main = asyncio.get_running_loop()
    held = [rig.hold(f"c{n}") for n in range(1_001)]
    assert await rig.keeper._renew(held)
    assert [len(batch) for batch in rig.renewer.asked] == [500, 500, 1]
    for one in held:
        rig.keeper.drop(one)
