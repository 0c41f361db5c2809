"""migrate and audit without a server of one's own: they bring Postgres and nothing else."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli
from threadhold.adapters import embedded, processes
from threadhold.adapters.embedded import servers, start_postgres, start_servers
from threadhold.adapters.settings import Settings


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the commands keep their servers in."""
    monkeypatch.setenv("THREADHOLD_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_database_is_brought_along_and_no_redis(state: Path, run_cli: RunCli) -> None:
    migrated = run_cli("migrate")
    assert (migrated.code, migrated.out.startswith("applied: migrations/0001")) == (0, True)
    folders = {each.name.partition("-")[0] for each in state.iterdir() if each.is_dir()}
    assert folders == {"postgres"}
    assert run_cli("migrate").out == "the database is up to date\n"
    assert run_cli("audit").out == "no broken invariant\n"
    assert {each.name.partition("-")[0] for each in state.iterdir() if each.is_dir()} == folders
    assert not (state / "servers.json").exists()


def test_who_needs_both_waits_for_one_that_has_postgres_alone(state: Path) -> None:
    found: list[embedded.Servers] = []
    with start_postgres(state, database_url=None) as alone:
        assert (alone.owned, alone.redis_url) == (True, "")
        waits = threading.Event()
        original = servers._attach

        def attach(*given: object) -> embedded.Servers | None:
            waits.set()
            return original(*given)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(servers, "_attach", attach)
            starter = threading.Thread(
                target=lambda: found.append(start_servers(state, database_url=None, redis_url=None))
            )
            starter.start()
            assert waits.wait(30)
            alone.stop()
            starter.join(60)
    (both,) = found
    with both:
        assert both.owned
        with start_postgres(state, database_url=None) as guest:
            assert (guest.attached, guest.database_url) == (True, both.database_url)
        settings = Settings(state=str(state))
        assert asyncio.run(processes.audit(settings)) == []


def test_a_database_of_ones_own_needs_no_folder(
    state: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADHOLD_DATABASE_URL", "postgresql://127.0.0.1:1/x")
    assert run_cli("migrate").code == 3
    assert not state.exists()
