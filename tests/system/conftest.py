"""Two API replicas and a crew of workers for all tests of this folder, each on threads of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.crew import Crew
from tests.support.processes import AGENTS, Processes, processes
from tests.support.servers import TestServers
from tests.support.truth import Truth, truth
from tests.support.watching import People, people

ROOT = str(Path(__file__).parents[2])
# Small, so that a test sees a claim lapse.
TTL_S = 3.0
TIMES = {
    "THREADHOLD_CLAIM_TTL": f"PT{TTL_S}S",
    "THREADHOLD_RENEW_EVERY": "PT0.5S",
    "THREADHOLD_TRUST_MARGIN": "PT0.5S",
}
# What may be added to a bound of time because other things run on this machine as well.
SLACK_S = 3.0

Gate = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class System:
    """The shared stack: two replicas' URLs, the workers, and what started them all."""

    a: str
    b: str
    crew: Crew
    starter: Processes
    database_url: str


@pytest.fixture(scope="package")
def system(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Start two API replicas; workers come when a test asks the crew for them."""
    stack = asyncio.run(servers.new_stack())
    environment = stack.environment(PYTHONPATH=ROOT, **TIMES)
    with processes(environment, tmp_path_factory.mktemp("system")) as starter:
        agents = {"AGENTS": "scripted,alpha,beta,gamma,delta"}
        replicas = [starter.start("serve", AGENTS, "--port", "0", env=agents) for _ in range(2)]
        a, b = (replica.url() for replica in replicas)
        yield System(a, b, Crew(starter), starter, stack.database_url)


@pytest.fixture
async def judge(system: System) -> AsyncIterator[Truth]:
    """Ask the shared database; after each test no invariant is broken and no process met a fault of ours."""
    async with truth(system.database_url) as asked:
        yield asked
        assert await asked.broken() == []
    assert system.starter.errors() == []


@pytest.fixture
async def public() -> AsyncIterator[People]:
    """Yield people, who leave with the test."""
    async with people() as some:
        yield some


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Return what names gates for scripts to hold at; `touch` opens one, and the end of the test all."""
    named: list[Path] = []

    def name(word: str) -> Path:
        named.append(tmp_path / word)
        return named[-1]

    yield name
    for path in named:
        path.touch()
