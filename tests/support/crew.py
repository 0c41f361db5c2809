"""The workers of one stack, shared by tests; whoever harms one leaves it to the next test to hire another."""

import asyncio
import itertools
from collections.abc import Mapping

from tests.support.processes import AGENTS, START_S_MAX, Process, Processes
from tests.support.waiting import until

READY = '"worker_ready"'


class Crew:
    """Starts workers as tests need them, and knows which one has a run.

    Args:
        starter: starts their processes, and ends them.
    """

    def __init__(self, starter: Processes) -> None:
        self._starter = starter
        self._names = (f"worker{number}" for number in itertools.count(1))
        self._hired: dict[str, Process] = {}

    def begin(self, *, env: Mapping[str, str] | None = None) -> tuple[str, Process]:
        """Start a worker beside the crew and return it with its name, before it is ready."""
        name = next(self._names)
        return name, self._starter.start("worker", AGENTS, "--name", name, env=env)

    async def have(self, count: int) -> None:
        """Return when the crew has at least so many workers that live and are ready."""
        self._hired = {name: worker for name, worker in self._hired.items() if worker.ended() is None}
        self._hired |= dict(self.begin() for _ in range(count - len(self._hired)))
        ready = [worker.says(READY, within=START_S_MAX) for worker in self._hired.values()]
        await asyncio.gather(*ready)

    async def holder(self, run: str) -> tuple[str, Process]:
        """Return the worker that claimed a run, with its name."""

        async def look() -> tuple[str, Process] | None:
            claimed = [
                (name, worker)
                for name, worker in self._hired.items()
                if any('"run_claimed"' in line and run in line for line in worker.text().splitlines())
            ]
            return claimed[-1] if claimed else None

        found = await until(look, what=f"nobody claimed run {run}")
        assert found is not None
        return found
