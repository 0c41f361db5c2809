"""Fixtures for all tests: real servers once per session, a stack of its own for each test."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.support.order import WholeFolders, in_order
from tests.support.processes import Processes, processes
from tests.support.servers import Stack, TestServers
from threadhold.adapters.logs import configure_logs
from threadhold.storage.pool import Database

# Drawn examples are the same ones each time, and nothing is judged by how long one takes: a machine may stand still.
settings.register_profile(
    "calm",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("calm")


# Whose processes count coverage. It doubles the time that each takes to start; others would count the same lines again.
MEASURED: Final = ("tests/system/", "tests/claims/", "tests/mcp/")
COUNTING: Final = "COVERAGE_PROCESS_CONFIG"
# Who runs none of our code but SQL, a great many steps of its own instead: counting doubles the time.
UNCOUNTED: Final = ("tests/model/",)
_counting: Final = os.environ.get(COUNTING)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count no coverage in this process while a test runs that has nothing to count."""
    counting = sys.gettrace()
    if _counting is not None and item.nodeid.startswith(UNCOUNTED):
        sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(counting)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the processes that a test starts count coverage, where that is asked for and they are among those that do."""
    if _counting is not None and item.nodeid.startswith(MEASURED):
        os.environ[COUNTING] = _counting
    else:
        os.environ.pop(COUNTING, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFolders | None:
    """Keep together what shares its servers, where several processes take whole files."""
    return WholeFolders(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long."""
    items[:] = in_order(items)


@pytest.fixture(scope="session", autouse=True)
def logs() -> None:
    """Log as our processes do."""
    configure_logs()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServers]:
    """One Postgres and one Valkey, started by the tests and ended with them."""
    with TestServers(tmp_path_factory.mktemp("servers")) as running:
        asyncio.run(running.make_template())
        yield running


@pytest.fixture
async def stack(servers: TestServers) -> AsyncIterator[Stack]:
    """A migrated database and a Redis prefix that nobody else uses."""
    made = await servers.new_stack()
    yield made
    await servers.take_back(made)


@pytest.fixture
async def database(stack: Stack) -> AsyncIterator[Database]:
    """A pool on the test's database."""
    opened = Database(stack.database_url, size=4)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def spawn(stack: Stack, tmp_path: Path) -> Iterator[Processes]:
    """Start `threadhold` processes on the test's stack; none outlives the test."""
    root = str(Path(__file__).parent.parent)
    with processes(stack.environment(PYTHONPATH=root), tmp_path) as starter:
        yield starter
