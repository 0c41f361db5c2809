"""Two API replicas and a worker on real servers, for all tests of this folder; each test has threads of its own."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.mcp.replicas import Replicas, replicas
from tests.support.servers import TestServers


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def pair(servers: TestServers) -> AsyncIterator[Replicas]:
    """Serve for all tests of the folder."""
    async with replicas(servers) as running:
        yield running


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return what names gates for scripts to hold at; `touch` opens one, and the end of the test all."""
    named: list[Path] = []

    def name(word: str) -> Path:
        named.append(tmp_path / word)
        return named[-1]

    yield name
    for path in named:
        path.touch()
