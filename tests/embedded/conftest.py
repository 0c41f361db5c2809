"""A state folder with a database in it, made once and copied for each test; supervisors that end with it."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.embedded.probes import Supervisor
from threadhold.adapters.embedded import EmbeddedPostgres

Supervise = Callable[..., Supervisor]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a state folder whose database was created."""
    state = tmp_path_factory.mktemp("template") / "state"
    server = EmbeddedPostgres(state)
    server.start()
    server.stop()
    return state


@pytest.fixture
def state(template: Path, tmp_path: Path) -> Path:
    """Return a state folder of the test's own."""
    return copied(template, tmp_path / "state")


def copied(state: Path, new: Path) -> Path:
    """Copy a state folder; not with shutil.copytree, which as root would not keep the owner of the data."""
    subprocess.run(["cp", "-Rp", state, new], check=True)
    return new


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
def open_state(template: Path, open_folder: Path) -> Path:
    """Return a state folder of the test's own that every user can reach."""
    return copied(template, open_folder / "state")


@pytest.fixture(scope="session")
def adapters_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an import path with the adapters alone: all that `threadhold` exports takes a second to import."""
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
