"""A short battle: real processes, faults from one seed, and not one promise broken. `make chaos` runs longer ones."""

import sys
from pathlib import Path

import pytest

from tests.chaos.battle import Plan
from tests.chaos.judge import stories
from tests.chaos.outcome import fought

SEED = 1
SECONDS = 20.0
KINDS_MIN = 10


@pytest.mark.skipif(
    sys.platform != "linux", reason="freezes and kills whole families, which it finds in /proc"
)
# It takes a minute on an idle machine. Every wait in it is bounded, and says what it waited for.
@pytest.mark.timeout(900)
def test_no_promise_is_broken_under_faults(tmp_path: Path) -> None:
    outcome, evidence = fought(Plan(seed=SEED, seconds=SECONDS, folder=tmp_path / "world"))
    assert not outcome.violations, "\n".join(stories(outcome.violations, evidence))
    assert not outcome.too_little
    assert len(outcome.faults) >= KINDS_MIN, outcome.faults
