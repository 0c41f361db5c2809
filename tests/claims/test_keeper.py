"""The keeper: trust that ends in time, losses that are final, and when it may be taken for dead."""

import asyncio

import pytest

from tests.claims.rig import Rig
from tests.support.waiting import until
from threadhold.claims import Held, News, Renewal, TooManyClaims
from threadhold.claims import keeper as keeper_module


def refuse() -> None:
    """Answer as a database that is away."""
    raise ConnectionError("down")


async def test_claim_is_renewable_from_the_moment_it_is_held(rig: Rig) -> None:
    held = rig.hold()
    assert list(rig.renewals._kept) == ["c1"]
    assert held.deadline == 113


async def test_trust_ends_on_the_local_clock(rig: Rig) -> None:
    held = rig.hold()
    rig.time = 112.9
    rig.keeper._check(held)
    assert rig.keeper.trusted(held)
    rig.time = 113
    assert not rig.keeper.trusted(held)
    rig.keeper._check(held)
    assert rig.losses == ["no renewal in time"]


async def test_trust_does_not_depend_on_whoever_renews_having_started() -> None:
    rig = Rig()
    rig.keeper._main = asyncio.get_running_loop()
    held = rig.hold()
    rig.time = 112
    assert rig.keeper.trusted(held)
    rig.time = 113
    assert not rig.keeper.trusted(held)
    await rig.keeper.aclose()


async def test_deadline_that_was_published_while_the_loop_stood_still_is_seen_by_the_first_timer(
    rig: Rig,
) -> None:
    held = rig.hold()
    rig.time = 112
    # The other process has renewed; its pipe was not read, and none of our tasks has run since.
    rig.board.extend(held.slot, held.owner, 125.0)
    rig.time = 120
    rig.keeper._check(held)
    assert (held.lost, rig.keeper.trusted(held), rig.losses) == (False, True, [])


async def test_slot_that_is_used_again_brings_nothing_of_the_claim_before(rig: Rig) -> None:
    first = rig.hold("c1")
    rig.keeper.drop(first)
    second = rig.hold("c2")
    assert second.slot == first.slot
    rig.board.extend(first.slot, first.owner, 500.0)
    rig.time = 114
    assert not rig.keeper.trusted(second)
    assert not rig.keeper.trusted(first)


async def test_claim_lost_because_renewals_fail_is_said_to_be_the_storages_fault(rig: Rig) -> None:
    held = rig.hold()
    rig.renewer.before = refuse
    rig.time = 104
    await rig.renewed(held)
    assert rig.losses == []
    rig.time = 113
    rig.keeper._check(held)
    assert rig.losses == ["storage"]


async def test_claim_taken_over_is_lost_once_and_never_renewed_again(rig: Rig) -> None:
    held, other = rig.hold("c1"), rig.hold("c2")
    rig.renewer.answer = lambda claim: Renewal(
        claim_id=claim.claim_id, result="lost" if claim.claim_id == "c1" else "renewed"
    )
    await rig.renewed(held)
    assert rig.losses == ["taken over"]
    await rig.renewed(other)
    assert rig.losses == ["taken over"]
    assert rig.renewer.asked[-1] == ["c2"]


async def test_claim_given_up_meanwhile_is_not_reported_lost(rig: Rig) -> None:
    held = rig.hold()
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result="lost")
    rig.renewer.before = lambda: rig.keeper.drop(held)
    await rig.renewed(held)
    assert rig.losses == []


async def test_news_of_a_stop_and_of_messages_reach_the_holder(rig: Rig) -> None:
    held = rig.hold()
    rig.renewer.answer = lambda claim: Renewal(
        claim_id=claim.claim_id, result="renewed", stop=True, waiting=2
    )
    await rig.renewed(held)
    assert rig.news == [News(stop=True, waiting=2)]


async def test_trust_ends_after_a_sleep_of_the_machine_that_the_timers_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_module, "TICK_S", 0.01)
    async with Rig().running() as rig:
        held = rig.hold()
        rig.time = 5_000

        async def lost() -> bool:
            return bool(held.lost)

        assert await until(lost)
        assert rig.losses == ["no renewal in time"]


async def test_dropped_claim_is_not_renewed(rig: Rig) -> None:
    held, other = rig.hold("c1"), rig.hold("c2")
    rig.keeper.drop(held)
    rig.keeper.drop(held)
    await rig.renewed(other)
    assert rig.renewer.asked[-1] == ["c2"]


async def test_process_holds_a_bounded_number_of_claims(rig: Rig) -> None:
    held = rig.hold()
    rig.keeper._slots.clear()
    with pytest.raises(TooManyClaims):
        rig.hold("c2")
    rig.keeper.drop(held)
    assert not rig.hold("c3").lost


async def test_whoever_renews_anew_is_told_what_is_held_and_until_when(rig: Rig) -> None:
    rig.hold("c1")
    held = rig.hold("c2")
    rig.keeper.drop(rig.hold("c3"))
    rig.time = 105
    await rig.renewed(held)
    lines = rig.keeper._holding()
    assert [(line[0], line[4], line[6]) for line in lines] == [("hold", "c1", 118.0), ("hold", "c2", 118.0)]


async def proven(rig: Rig, held: Held) -> None:
    """Renew once over a connection that holds the lock."""
    rig.renewer.hinted = True
    await rig.renewed(held)


async def test_keeper_without_a_lock_marks_nothing_and_is_sure(rig: Rig) -> None:
    assert not rig.keeper.hinted
    rig.time = 5_000
    assert rig.keeper.sure()


async def test_keeper_with_a_lock_is_sure_for_two_seconds_from_when_its_last_proof_began(rig: Rig) -> None:
    held = rig.hold()
    await proven(rig, held)
    assert rig.keeper.hinted
    rig.time = 101.9
    assert rig.keeper.sure()
    rig.time = 102
    assert (rig.keeper.sure(), rig.keeper.hinted, rig.losses) == (False, False, [])


async def test_keeper_whose_lock_is_cut_starts_nothing_and_loses_nothing_until_it_has_it_again(
    rig: Rig,
) -> None:
    held = rig.hold()
    await proven(rig, held)
    rig.renewer.before = refuse
    rig.renewer.hinted = False
    rig.time = 103
    await rig.renewed(held)
    assert (rig.keeper.sure(), rig.keeper.trusted(held)) == (False, True)
    rig.renewer.before = lambda: None
    rig.time = 106
    await proven(rig, held)
    assert (rig.keeper.sure(), rig.keeper.hinted, rig.losses) == (True, True, [])
