"""One browser per test file, and one `dev` behind a network that tests may cut."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.http.scripted import Api, serving
from tests.page.browser import MISSING, Browser, Tab, browser, executable
from tests.page.chats import chat
from tests.page.network import Network, network
from tests.support.processes import AGENTS, processes
from tests.support.servers import TestServers


@dataclass(frozen=True)
class Site:
    """Where the page is: straight, and through a network."""

    url: str
    far_url: str
    network: Network


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """Run a browser for all tests of a file."""
    if executable() is None:
        # No wheel brings a browser; CI installs one, and a machine of one's own may have none.
        pytest.skip(MISSING)
    async with browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="module")
def dev(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run `threadhold dev` on the servers of the tests; gives its URL."""
    stack = asyncio.run(servers.new_stack())
    root = str(Path(__file__).parents[2])
    with processes(stack.environment(PYTHONPATH=root), tmp_path_factory.mktemp("dev")) as starter:
        yield starter.start("dev", AGENTS, "--port", "0").url()
    asyncio.run(servers.take_back(stack))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(dev: str) -> AsyncIterator[Site]:
    """Put a network before it."""
    async with network(urlsplit(dev).port or 0) as (made, port):
        yield Site(dev, f"http://127.0.0.1:{port}", made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[Api]:
    """Serve the page on a scripted Runner."""
    async with serving(page=True) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module(chromium: Browser, api: Api) -> AsyncIterator[Tab]:
    """Open the page for tests that only call its modules."""
    async with chat(chromium, str(api.client.base_url)) as opened:
        yield opened
