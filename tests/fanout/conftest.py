"""A real Valkey for the tests that need one."""

from collections.abc import Iterator

import pytest

from tests.fanout.valkey import Valkey


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """Start a server that the tests of this module may stop and start."""
    server = Valkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey: Valkey) -> str:
    """Return the URL of a running server."""
    return valkey.url
