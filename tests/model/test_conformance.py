"""The database's functions do what the machine does: what the model proves of the one is true of the other."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.model.bench import Bench
from tests.model.walk import Walk
from tests.support.servers import Stack

WALKS, STEPS = 40, 60


@pytest.fixture
async def connection(stack: Stack) -> AsyncIterator[Any]:
    """One connection to a migrated database."""
    opened: Any = await asyncpg.connect(stack.database_url)
    yield opened
    await opened.close()


async def test_random_walks_agree_with_the_machine(connection: Any) -> None:
    seen: Counter[str] = Counter()
    await Bench("threadhold").run(connection, "note_start")
    for seed in range(WALKS):
        walk = Walk(Bench("threadhold"), connection, seed)
        await walk.go(STEPS)
        seen += walk.seen
    assert await Bench("threadhold").audit(connection) == []
    missing = MUST_HAPPEN - set(seen)
    assert not missing, "the walks are too tame to say anything about these"


MUST_HAPPEN = {
    *("send ok started", "send ok steered", "send ok queued", "send ok replied", "send thread_busy "),
    *(
        "send_again ok started",
        "send_again ok queued",
        "stop_run requested",
        "stop_run ended",
        "stop_thread requested",
    ),
    *("claim started", "claim held", "claim nothing", "claim not_mine", "hold held", "hold thread_busy"),
    *(
        "record ok",
        "record fenced",
        "end ended",
        "end continue",
        "end fenced",
        "partial ok",
        "partial fenced",
    ),
    *(
        "pause paused",
        "pause stop",
        "pause fenced",
        "answer ok",
        "answer already_answered",
        "hand_over fenced",
    ),
    *("release pending", "release fenced", "renew renewed", "renew lost", "renew busy"),
    *("lapse pending", "lapse stopped", "lapse abandoned", "lapse poison", "lapse left alone"),
}
