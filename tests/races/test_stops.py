"""Stops against the end of their run, at some random moments; `python -m tests.races stops` for many."""

import os
from itertools import product

import pytest

from tests.races.stage import staged
from tests.races.stops import OUTCOMES, WAYS, stops
from tests.support.servers import Stack

COUNT = int(os.environ.get("STOPS", "40"))


@pytest.mark.timeout(600)
async def test_a_run_that_is_stopped_as_it_ends_has_one_outcome_for_everybody(stack: Stack) -> None:
    async with staged(stack, seed=COUNT) as stage:
        tally = await stops(stage, count=COUNT)
    outcomes = tally.outcomes()
    assert outcomes.total() == COUNT
    # Either has won, in each way: the first ones see to that.
    assert set(tally.ended) == set(product(WAYS, OUTCOMES))
    assert tally.retried == COUNT // 4
