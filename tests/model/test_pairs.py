"""Two transactions at once do what they do in order, whichever of them waits."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from itertools import product

from tests.model.bench import Bench
from tests.model.mutants import LOCKING
from tests.model.pairs import CALLS, OF_FUNCTION, SCENES, Difference, Lane, compare, prepare
from tests.support.servers import Stack

SCHEMA = "threadhold"
LANES, PAIRS = 4, 240


async def play(lane: Lane, pairs: Iterable[tuple[str, str, str]]) -> tuple[Counter[str], list[Difference]]:
    """Play pairs one by one; returns which calls had to wait, and what differs."""
    waited: Counter[str] = Counter()
    found = []
    for scene, a, b in pairs:
        held_up, difference = await compare(lane, SCHEMA, scene, a, b)
        waited[b] += held_up
        found += [difference] if difference is not None else []
    return waited, found


async def test_pairs_at_once_do_what_they_do_in_order(stack: Stack) -> None:
    lanes = [await Lane.open(stack.database_url) for _ in range(LANES)]
    await prepare(lanes[0], SCHEMA)
    drawn = random.Random(1).sample(list(product(SCENES, CALLS, CALLS)), PAIRS)
    played = await asyncio.gather(*(play(lane, drawn[i::LANES]) for i, lane in enumerate(lanes)))
    differences = [str(difference) for _, found in played for difference in found]
    assert not differences, "\n".join(differences[:3])
    waited = sum((waited for waited, _ in played), Counter[str]())
    assert waited.total() > PAIRS / 2, "too few had to wait to say anything"
    assert await Bench(SCHEMA).audit(lanes[0].aside) == []
    for lane in lanes:
        await lane.aclose()


def test_every_locking_function_is_among_the_pairs() -> None:
    assert set(OF_FUNCTION) - {"_take_over"} == set(LOCKING)
    assert {call for calls in OF_FUNCTION.values() for call in calls} == set(CALLS) - {"renew"}
