"""Messages around a run's end and around a pause, at some random moments; `python -m tests.races sends` for many."""

import os

import pytest

from tests.races.sends import sends
from tests.races.stage import staged
from tests.support.servers import Stack

COUNT = int(os.environ.get("SENDS", "200"))


@pytest.mark.timeout(600)
async def test_every_message_goes_exactly_one_way(stack: Stack) -> None:
    async with staged(stack, seed=COUNT) as stage:
        tally = await sends(stage, count=COUNT)
    fates = tally.fates()
    assert tally.late >= COUNT
    assert fates.total() == tally.sent
    # It was worth looking: each way was gone.
    assert {"started", "came along", "consumed", "replied", "returned"} <= set(fates)
