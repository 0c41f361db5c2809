"""The protocol holds in every state within small bounds, and no guard of it is there for nothing."""

import re
from functools import cache

import pytest

from tests.model import leases, table
from tests.model.explore import Result, explore
from tests.model.guards import Guards, without
from tests.model.world import COUNTED, Setting


@cache
def explored(name: str) -> Result:
    """Explore a small bound, once for all tests."""
    return explore(Setting(table.SMALL[name]))


@pytest.mark.parametrize("name", table.SMALL)
def test_protocol_holds_in_every_state(name: str) -> None:
    found = explored(name)
    assert not found.broken, found.steps
    assert found.states > 1_000, "the bound has become too small to say anything"


@pytest.mark.parametrize("name", table.TIMES_SMALL)
def test_claims_in_time_hold_at_every_moment(name: str) -> None:
    broken, steps, moments = leases.explore(table.TIMES_SMALL[name])
    assert not broken, steps
    assert moments > 1_000


@pytest.mark.parametrize("guard", Guards._fields)
def test_without_a_guard_an_invariant_breaks(guard: str) -> None:
    case = table.CASES[guard]
    found = explore(Setting(case.bound, without(guard)))
    assert found.broken.startswith(case.breaks + ":"), (found.broken, found.steps)
    assert found.steps


@pytest.mark.parametrize("guard", leases.TimeGuards._fields)
def test_without_a_guard_in_time_an_invariant_breaks(guard: str) -> None:
    breaks, where = table.TIME_CASES[guard]
    removed = leases.TimeGuards()._replace(**{guard: False})
    broken, steps, _ = leases.explore(table.TIMES_SMALL[where], removed)
    assert broken.startswith(breaks + ":"), (broken, steps)
    assert steps


@pytest.mark.parametrize("fault", COUNTED)
def test_every_fault_strikes_in_some_bound(fault: str) -> None:
    assert any(getattr(bound, fault) for bound in table.SMALL.values())


def test_every_kind_of_step_is_taken_within_the_small_bounds() -> None:
    labels = {re.sub(r"^w\d", "w", label) for name in table.SMALL for label in explored(name).taken}
    missing = [step for step in STEPS if not any(label.startswith(step) for label in labels)]
    assert not missing, "the bounds have become too small for these"


STEPS = (
    *(
        f"a message ({mode}) is {what}"
        for mode in ("steer", "queue", "interrupt")
        for what in ("started", "queued")
    ),
    *("a message (steer) is steered", "a message (reject) is started", "a message (steer) is replied"),
    *(
        f"the stop of the {what} arrives: {how}"
        for what in ("run", "thread")
        for how in ("requested", "stopped", "ended")
    ),
    *(
        "the stop of the run arrives: decide_first",
        "the stop of the thread arrives: requested, the answer is lost",
    ),
    *("other answers the question: reply, ok", "other answers the approval: approve, ok"),
    *("requester answers the approval: approve, ok", "other answers the approval: reject, expired"),
    *("a request runs out", "a sweep denies", "the claim of a dead holder runs out"),
    *(f"a sweep takes the lapsed claim: {how}" for how in ("pending", "stopped", "abandoned", "poison")),
    "a sweep takes the claim by the hint: pending",
    *("the holder's lock vanishes", "the holder has its lock again", "a sweeper sees the lock absent"),
    *("the claim runs out, its holder goes on", "the database restarts, the last commit is lost"),
    *("w dies", "w notices", "w renews", "w holds the thread", "w starts the run, the answer is lost"),
    *(
        "w takes over, and finds not_mine",
        "w asks again: started",
        "w asks again: held",
        "w gives its start up",
    ),
    *("w reads the inbox", "w records and shows", "w records, the answer is lost", "w records again"),
    *(
        "w completes",
        "w ends: ended, the answer is lost",
        "w sees the stop: ended",
        "w fails",
        "w pauses: paused",
    ),
    *("w hands over: handed_over", "w hands over: stopped", "w gives its claim up: pending"),
    "w is ending, again: ended",
)
