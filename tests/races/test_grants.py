"""Two hundred calls at once on a grant of ten uses; `python -m tests.races grants --count 20` for more."""

import os

import pytest

from tests.races.grants import CALLS, USES, crowd, grants
from tests.support.servers import Stack

COUNT = int(os.environ.get("GRANTS", "1"))


@pytest.mark.timeout(600)
async def test_as_many_calls_run_as_were_granted_and_no_more(stack: Stack) -> None:
    async with crowd(stack, seed=COUNT) as stage:
        tally = await grants(stage, count=COUNT)
    assert (tally.ran, tally.denied) == (COUNT * USES, COUNT * (CALLS - USES))
