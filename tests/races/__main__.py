"""Run a race many times: `python -m tests.races sends --count 10000`, `python -m tests.races stops --count 1000`."""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from tests.races.answers import answers
from tests.races.grants import crowd, grants
from tests.races.sends import sends
from tests.races.stage import staged
from tests.races.stops import stops
from tests.support.servers import TestServers
from threadhold.adapters.logs import configure_logs


class Tally(Protocol):
    """What a race has counted."""

    def report(self) -> list[str]:
        """Say it for people."""
        ...


RACES: Final[Mapping[str, Callable[..., Awaitable[Tally]]]] = {
    "sends": sends,
    "stops": stops,
    "grants": grants,
    "answers": answers,
}
STAGES: Final[Mapping[str, Callable[..., AbstractAsyncContextManager[Any]]]] = {"grants": crowd}
"""Where a race is run that has a stage of its own."""


async def main(race: str, count: int, seed: int, servers: TestServers) -> None:
    """Run a race on a database of its own and print what it counted."""
    await servers.make_template()
    began = time.monotonic()
    async with STAGES.get(race, staged)(await servers.new_stack(), seed=seed) as stage:
        tally = await RACES[race](stage, count=count)
    lines = [f"{race}, count {count}, seed {seed}, {time.monotonic() - began:.0f} s", *tally.report()]
    sys.stdout.write("\n".join([*lines, "no invariant is broken"]) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.races", description=__doc__)
    parser.add_argument("race", choices=sorted(RACES))
    parser.add_argument(
        "--count", type=int, default=1_000, help="how many messages, stops, answers, or rounds of 200 calls"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the delays; the timing is the machine's own")
    given = parser.parse_args()
    configure_logs(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, TestServers(Path(folder)) as running:
        asyncio.run(main(given.race, given.count, given.seed, running))
