"""Where the source files are, for the tests in this folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("adapters", "claims", "fanout", "runner", "storage")


def product_files() -> list[Path]:
    """Return every Python file that the wheel holds."""
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    return sorted([*files, ROOT / "src" / "threadhold" / "__init__.py"])


def other_files() -> list[Path]:
    """Return the Python files beside the product: tests, benchmarks, examples, CI."""
    return sorted(
        path for name in ("tests", "benchmarks", "examples", ".ci") for path in (ROOT / name).rglob("*.py")
    )


def name_of(path: Path) -> str:
    """Return the path as a reader of the repository would write it."""
    return path.relative_to(ROOT).as_posix()
