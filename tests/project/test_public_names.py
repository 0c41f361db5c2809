"""What a package exports is what its __init__ lists: nothing leaks out of it, nothing listed is missing."""

import importlib
from types import ModuleType

import pytest

from tests.project.sources import PARTS, ROOT

PACKAGES = ["threadhold", *(f"threadhold.{part}" for part in PARTS)]


def public_names(package: ModuleType) -> set[str]:
    """Return the names without an underscore that are bound in the package and are not its modules."""
    bound = vars(package).items()
    return {name for name, value in bound if not name.startswith("_") and not isinstance(value, ModuleType)}


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_complete(name: str) -> None:
    package = importlib.import_module(name)
    listed: list[str] = getattr(package, "__all__", [])
    assert listed == sorted(set(listed))
    assert public_names(package) <= set(listed), "import it under an underscore, or list it"
    assert [entry for entry in listed if not hasattr(package, entry)] == []


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_a_relative_link(part: str) -> None:
    link = ROOT / "src" / "threadhold" / part
    assert link.is_symlink(), (
        "git on this machine did not make the link: set core.symlinks and check out again"
    )
    assert link.readlink().as_posix() == f"../../{part}"
