"""The watch keeps its promises in every state within small bounds, and no guard of it is there for nothing."""

import re
from functools import cache

import pytest

from tests.fanout.watch import table
from tests.fanout.watch.explore import Result, explore
from tests.fanout.watch.guards import COVERED, NAMES, taken_away
from tests.fanout.watch.world import Left


@cache
def explored(name: str) -> Result:
    """Explore a small bound, once for all tests."""
    return explore(table.SMALL[name])


@pytest.mark.parametrize("name", table.SMALL)
def test_watchers_get_what_they_are_promised_in_every_state(name: str) -> None:
    found = explored(name)
    assert not found.broken, found.steps
    assert found.states > 300, "the bound has become too small to say anything"


@pytest.mark.parametrize("guard", NAMES)
def test_without_a_guard_a_promise_breaks(guard: str) -> None:
    case = table.CASES[guard]
    with taken_away(guard) as left:
        found = explore(case.bound, left)
    assert found.broken.startswith(case.breaks + ":"), (found.broken, found.steps)
    assert found.steps


@pytest.mark.parametrize("guard", COVERED)
def test_a_guard_that_another_one_covers_for_breaks_nothing(guard: str) -> None:
    with taken_away(guard) as left:
        found = explore(table.COVERED[guard], left)
    assert not found.broken, found.steps


@pytest.mark.parametrize("misfortune", Left._fields)
def test_every_misfortune_strikes_in_some_bound(misfortune: str) -> None:
    bounds = table.SMALL.values() if misfortune != "others" else table.LARGE.values()
    assert any(getattr(bound.left, misfortune) for bound in bounds)


def test_every_kind_of_step_is_taken_within_the_small_bounds() -> None:
    labels = {label for name in table.SMALL for label in explored(name).taken}
    missing = [step for step in STEPS if not any(re.fullmatch(step, label) for label in labels)]
    assert not missing, "the bounds have become too small for these"


STEPS = (
    r"a0 sends 1-1",
    r"a0 keeps 1-1",
    r"a0 drops 1-1",
    r"a0 sends 1-2, and falls silent",
    r"a0 sends 1-1, and clears the stream",
    r"a0 finds its claim lost",
    r"fact 1 run_started(, not rung)?",
    r"fact 2 attempt_closed",
    r"fact \d run_ended",
    r"the thread is (subscribed|given up)",
    r"the connection breaks( with all under way)?",
    r"the connection is back",
    r"the hub hears \('[cdlr]'.*",
    r"the hub (reads|takes) the head",
    r"the hub reads facts",
    r"the hub hands facts on",
    r"the hub looks at the top of the stream",
    r"the stream is (trimmed|flushed)",
    r"the database loses a commit",
    r"a fact is pruned",
    r"\(.*\) is lost",
    r"\(.*\) comes again",
    r"w0 (comes|leaves|begins|goes on)",
    r"w1 reads and takes its page",
    r"w0 finds Redis away and takes its page",
)
