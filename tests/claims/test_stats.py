"""What a keeper says of itself."""

from tests.claims.rig import TIMES, Rig
from threadhold.claims import Renewal


async def running(rig: Rig) -> None:
    """Start a keeper and renew once."""
    rig.keeper.start()
    await rig.renewed(rig.hold())


async def test_renewals_are_counted_and_age() -> None:
    rig = Rig()
    assert rig.keeper.stats().age_s is None
    await running(rig)
    before = rig.keeper.stats()
    assert (before.held, before.failed, dict(before.lost)) == (1, 0, {})
    assert before.renewed > 0
    assert before.age_s == 0
    rig.time += 1
    assert rig.keeper.stats().age_s == 1
    await rig.keeper.aclose()


async def test_failures_are_counted() -> None:
    rig = Rig()

    def refuse() -> None:
        raise OSError("away")

    rig.renewer.before = refuse
    rig.keeper.start()
    await rig.renewed(rig.hold())
    assert rig.keeper.stats().failed > 0
    assert (rig.keeper.stats().renewed, rig.keeper.stats().age_s) == (0, None)
    await rig.keeper.aclose()


async def test_lost_claims_are_counted_by_why() -> None:
    rig = Rig()
    await running(rig)
    rig.renewer.answer = lambda claim: Renewal(claim_id=claim.claim_id, result="lost")
    await rig.renewed(rig.hold("c2"))
    late = rig.hold("c3")
    rig.time += TIMES.ttl
    rig.keeper._check(late)
    lost = rig.keeper.stats().lost
    assert (lost["taken over"] > 0, lost["no renewal in time"]) == (True, 1)
    await rig.keeper.aclose()


async def test_a_process_that_is_started_anew_counts_on() -> None:
    rig = Rig()
    rig.board.write("renewals", 41)
    await running(rig)
    assert rig.keeper.stats().renewed > 41
    await rig.keeper.aclose()
