"""Fixtures for the tests of claims."""

from collections.abc import AsyncIterator

import pytest

from tests.claims.rig import Rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A running keeper, closed in the end."""
    async with Rig().running() as made:
        yield made
