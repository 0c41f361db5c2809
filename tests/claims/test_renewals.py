"""Renewals: what they publish, when they give up, and that they never do so early."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.claims.rig import TIMES, FakeRenewer, FakeWatched, Rig
from tests.claims.test_keeper import refuse
from tests.support.waiting import until
from threadhold.claims import Claim, ClaimTimes, Renewal
from threadhold.claims.board import Board
from threadhold.claims.renewals import Renewals


async def test_process_says_that_it_lives_without_any_claim(rig: Rig) -> None:
    assert rig.renewer.asked == [[]]


async def test_renewal_moves_the_deadline_from_where_it_began(rig: Rig) -> None:
    held = rig.hold()

    def slow() -> None:
        rig.time += 2

    rig.renewer.before = slow
    rig.time = 105
    await rig.renewed(held)
    assert rig.keeper.trusted(held)
    assert held.deadline == 118


async def test_failed_renewal_is_tried_again_said_once_and_is_not_the_end(rig: Rig) -> None:
    held = rig.hold()
    rig.renewer.before = refuse
    with capture_logs() as logs:
        for rig.time in (104.0, 107.0, 110.0):
            await rig.renewed(held)
        assert rig.keeper.trusted(held)
        assert rig.renewer.resets >= 3
        rig.renewer.before = lambda: None
        rig.time = 112
        await rig.renewed(held)
    assert rig.keeper.trusted(held)
    assert held.deadline == 125
    rig.time = 125
    rig.keeper._check(held)
    assert rig.losses == ["no renewal in time"]
    assert [line["event"] for line in logs] == ["renewal_failed", "renewal_recovered"]


async def test_renewal_that_hangs_is_given_up_and_tried_over_another_connection() -> None:
    renewer = FakeRenewer(before=lambda: asyncio.sleep(3600))
    board, times = Board(), ClaimTimes(ttl=0.06, renew_every=0.02, margin=0.01)
    renewals = Renewals(
        renewer, times=times, board=board, watched=FakeWatched(), tell=lambda line: True, clock=lambda: 1.0
    )
    running = asyncio.create_task(renewals.run())

    async def reset() -> bool:
        return renewer.resets > 0

    await until(reset)
    assert board.read("failing") == 1.0
    renewals.close()
    await running
    board.close()


async def test_answer_that_comes_after_trust_has_ended_counts_for_nothing(rig: Rig) -> None:
    held = rig.hold()

    def slow() -> None:
        rig.time = 113.5

    rig.renewer.before = slow
    rig.time = 105
    await rig.renewed(held)
    assert not rig.keeper.trusted(held)
    assert held.deadline == 113
    rig.keeper._check(held)
    assert held.lost


async def test_claim_whose_trust_has_ended_is_never_asked_for_again(rig: Rig) -> None:
    held = rig.hold()
    rig.time = 113
    await rig.renewed(held)
    assert rig.renewer.asked[-1] == []
    rig.time = 100
    await rig.renewed(rig.hold("c2"))
    assert ["c1"] not in rig.renewer.asked


async def test_locked_row_is_neither_renewed_nor_lost(rig: Rig) -> None:
    held = rig.hold()
    answers = iter(["busy", "renewed"])
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result=next(answers))  # type: ignore[arg-type]
    rig.time = 104
    await rig.renewed(held)
    rig.time = 107
    await rig.renewed(held)
    assert rig.keeper.trusted(held)
    assert held.deadline == 120
    assert rig.losses == []


async def test_blocked_loop_is_told_to_the_store_and_loses_no_claim(rig: Rig) -> None:
    held = rig.hold()
    rig.watched.blocked = 59.0
    rig.time = 104
    await rig.renewed(held)
    assert rig.renewer.blocked[-1] == 59.0
    assert rig.keeper.trusted(held)
    assert held.deadline == 117


async def test_dead_loop_gives_its_claims_up_and_is_reported_once(rig: Rig) -> None:
    rig.hold()
    rig.watched.blocked = 60.1
    before = len(rig.renewer.asked)
    with capture_logs() as logs:
        for rig.time in (104.0, 108.0):
            await rig.renewals._step()
    assert len(rig.renewer.asked) == before
    assert [line["event"] for line in logs] == ["main_loop_dead"]


async def test_frozen_process_renews_and_proves_nothing_until_it_runs_again(rig: Rig) -> None:
    rig.hold()
    rig.renewer.hinted = True
    rig.watched.stopped = True
    before = len(rig.renewer.asked)
    for rig.time in (104.0, 108.0):
        await rig.renewals._step()
    assert (len(rig.renewer.asked), rig.renewer.proofs) == (before, 0)
    rig.watched.stopped = False
    await rig.renewals._step()
    assert rig.renewer.asked[-1] == ["c1"]


async def test_lock_is_proven_between_two_renewals(rig: Rig) -> None:
    rig.renewer.hinted = True
    await rig.renewed(rig.hold())
    rig.time = 100.8
    await rig.renewals._step()
    assert (rig.renewer.proofs, rig.board.read("proof")) == (1, 100.8)
    rig.time = 101
    await rig.renewals._step()
    assert rig.renewer.proofs == 1


async def test_failed_proof_is_followed_by_a_renewal_at_once(rig: Rig) -> None:
    rig.renewer.hinted = True
    await rig.renewed(rig.hold())
    rig.renewer.before = refuse
    rig.time = 100.8
    await rig.renewals._step()
    assert (rig.renewer.proofs, rig.board.read("proof")) == (1, 100.0)
    rig.renewer.before = lambda: None
    before = len(rig.renewer.asked)
    await rig.renewals._step()
    assert rig.renewer.asked[before:] == [["c1"]]
    assert rig.board.read("proof") == 100.8


async def test_loss_is_said_again_until_it_can_be_heard(rig: Rig) -> None:
    held = rig.hold()
    rig.deaf = True
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result="lost")
    await rig.renewed(held)
    assert rig.losses == []
    rig.deaf = False
    await rig.renewals._step()
    await rig.renewals._step()
    await rig.settle()
    assert rig.told == [["lost", "c1"]]
    assert rig.losses == ["taken over"]


@pytest.mark.parametrize(("claims", "batches"), [(0, [0]), (500, [500]), (1_001, [500, 500, 1])])
async def test_many_claims_are_renewed_in_batches(claims: int, batches: list[int]) -> None:
    renewer, board = FakeRenewer(), Board()
    renewals = Renewals(
        renewer, times=TIMES, board=board, watched=FakeWatched(), tell=lambda line: True, clock=lambda: 100.0
    )
    for number in range(claims):
        renewals.take(["hold", number, 1, "t", f"c{number}", 1, 113.0])
    await renewals._step()
    assert [len(batch) for batch in renewer.asked] == batches
    assert (
        Claim(thread="t", claim_id="c0", fence=1) in [kept.claim for kept in renewals._kept.values()]
        or not claims
    )
    board.close()
