"""A server per test file; each test finds it with a Runner that was asked nothing yet."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.http.scripted import Api, serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_api() -> AsyncIterator[Api]:
    """Serve for all tests of a file."""
    async with serving() as running:
        yield running


@pytest.fixture
def api(shared_api: Api) -> Api:
    """Return the file's server as new; a test that ends a server makes one of its own."""
    shared_api.runner.reset()
    return shared_api
