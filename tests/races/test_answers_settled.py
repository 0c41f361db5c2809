"""Answers against another answer, the expiry and a stop, some times; `python -m tests.races answers` for many."""

import os

import pytest

from tests.races.answers import CERTAIN, OUTCOMES, WAYS, answers
from tests.races.stage import staged
from tests.support.servers import Stack

COUNT = int(os.environ.get("ANSWERS", "30"))


@pytest.mark.timeout(600)
async def test_a_request_has_one_decision_for_everybody_whatever_it_meets(stack: Stack) -> None:
    async with staged(stack, seed=COUNT) as stage:
        tally = await answers(stage, count=COUNT)
    assert tally.decided.total() == COUNT >= len(WAYS) * CERTAIN
    # Each has won, in each way: the first ones see to that.
    for way in WAYS:
        assert {decided for found, decided, _ in tally.decided if found == way} == OUTCOMES[way]
