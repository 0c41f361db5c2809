"""The desk of the tests of the stores, to look at what records do to everything else."""

from tests.storage.conftest import desk, thread

__all__ = ["desk", "thread"]
