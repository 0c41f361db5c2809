"""What any store of run records does: each check takes a house with empty stores, and fails where one differs."""

from tests.repositories import reads, writes
from tests.repositories.house import CHECKS, House

__all__ = ["CHECKS", "House", "reads", "writes"]
