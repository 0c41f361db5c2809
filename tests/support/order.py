"""Which tests go to which of several processes, and in which order."""

from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# Their tests share servers for the whole folder, which take longer to start than most of its files: once is enough.
SHARING: Final = ("tests/mcp",)
# What takes long begins early, so that no process is left alone with it in the end; what is quick fills the gaps.
EARLY: Final = (
    "tests/system",
    "tests/chaos",
    *SHARING,
    "tests/page",
    "tests/tutorial",
    "tests/model",
    "tests/races",
    "tests/runner",
    "tests/embedded",
)
LATE: Final = ("tests/project",)


class WholeFolders(LoadFileScheduling):  # type: ignore[misc]
    """Hands out whole files, and whole folders where their tests share what they have started."""

    def _split_scope(self, nodeid: str) -> str:
        folder = _folder(nodeid)
        return folder if folder in SHARING else str(super()._split_scope(nodeid))


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the long folders first; within a folder they stay as they are."""
    return sorted(items, key=lambda item: _place(_folder(item.nodeid)))


def _folder(nodeid: str) -> str:
    """Return the folder of a test's file."""
    return nodeid.partition("::")[0].rpartition("/")[0]


def _place(folder: str) -> int:
    """Return the place of a folder among the others."""
    if folder in EARLY:
        return EARLY.index(folder)
    return len(EARLY) + LATE.count(folder)
