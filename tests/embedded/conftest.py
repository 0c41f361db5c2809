"""A state folder with a database in it, handed from test to test; supervisors that end with their test."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.embedded.probes import Supervisor
from threadhold.adapters.embedded import EmbeddedPostgres
from threadhold.adapters.embedded.locks import FileLock

Supervise = Callable[..., Supervisor]


@pytest.fixture(scope="session")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the database is between two tests; nothing is there before the first."""
    return tmp_path_factory.mktemp("spare") / "state"


@pytest.fixture
def state(spare: Path, tmp_path: Path) -> Iterator[Path]:
    """Lend the test a state folder with a database in it."""
    with lent(spare, tmp_path / "state") as place:
        yield place


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user can reach (not root's tmp_path, then); as root it belongs to nobody."""
    with tempfile.TemporaryDirectory(prefix="threadhold-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() == 0:
            subprocess.run(["chown", "nobody", folder], check=True)
        yield folder


@pytest.fixture
def open_state(spare: Path, open_folder: Path) -> Iterator[Path]:
    """Lend the test a state folder with a database in it, where every user can reach it."""
    with lent(spare, open_folder / "state") as place:
        yield place


@contextmanager
def lent(spare: Path, place: Path) -> Iterator[Path]:
    """Move the database to where a test wants it, and back if the test has left it in order.

    Creating one takes a second, and copying one hardly less.
    """
    if spare.exists():
        spare.rename(place)
    else:
        server = EmbeddedPostgres(place)
        server.start()
        server.stop()
    yield place
    if place.exists() and all(ended(lock) for lock in place.glob("*/server.lock")):
        place.rename(spare)


def ended(path: Path) -> bool:
    """Tell whether the server that held the lock is gone, or goes within some seconds."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout_s=5, waiting=lambda waited_s: None)
    finally:
        lock.close()


@pytest.fixture(scope="session")
def adapters_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an import path with the adapters alone: `threadhold` as a whole takes a second."""
    path = tmp_path_factory.mktemp("path")
    (path / "threadhold").mkdir()
    (path / "threadhold" / "__init__.py").touch()
    (path / "threadhold" / "adapters").symlink_to(Path(__file__).parents[2] / "adapters")
    return path


@pytest.fixture
def supervise(adapters_only: Path) -> Iterator[Supervise]:
    """Return what starts supervisors; they are gone after the test."""
    started: list[Supervisor] = []

    def start(state: Path, *flags: str) -> Supervisor:
        started.append(Supervisor(state, *flags, import_path=adapters_only))
        return started[-1]

    yield start
    for supervisor in started:
        supervisor.kill()
        supervisor.finish()
