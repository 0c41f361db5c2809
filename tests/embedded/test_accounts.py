"""Whom the servers run as: ourselves; `nobody` when we are root, whatever is closed to `nobody`."""

import os
import pwd
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.embedded.conftest import Supervise
from tests.embedded.probes import gone, sql
from threadhold.adapters.embedded import EmbeddedPostgres, StateUnusable, postgres
from threadhold.adapters.embedded.binaries import PostgresBinaries, find_postgres, find_valkey
from threadhold.adapters.embedded.process import Account, runs

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def nobody() -> Account:
    entry = pwd.getpwnam("nobody")
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def start_and_ask(state: Path) -> EmbeddedPostgres:
    """Start twice in a row, and return the server after it was stopped."""
    server = EmbeddedPostgres(state)
    for _ in range(2):
        server.start()
        assert sql(server.url, "SELECT 1") == 1
        server.stop()
    return server


@root_only
def test_root_runs_postgres_as_nobody(open_folder: Path) -> None:
    if not runs([find_postgres().postgres, "--version"], account=nobody()):
        # `nobody` cannot execute what lies below a folder that is closed to others, as root's home often is.
        pytest.skip("the installed Postgres lies below a folder that is closed to others")
    server = start_and_ask(open_folder / "state")
    assert server._runs_as == nobody()
    assert server.data.stat().st_uid == nobody().uid


@root_only
def test_state_below_a_closed_folder(open_folder: Path) -> None:
    (open_folder / "closed").mkdir(mode=0o700)
    server = start_and_ask(open_folder / "closed" / "state")
    assert server._runs_as == replace(nobody(), override=True)


@root_only
def test_binaries_below_a_closed_folder(
    open_folder: Path, open_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    found = find_postgres()
    package = found.postgres.parents[2]
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            subprocess.run(["cp", "-Rp", part, closed], check=True)
    bin_folder = closed / found.postgres.relative_to(package.parent).parent
    moved = PostgresBinaries(
        postgres=bin_folder / "postgres", initdb=bin_folder / "initdb", major=found.major
    )
    monkeypatch.setattr(postgres, "find_postgres", lambda: moved)
    server = start_and_ask(open_state)
    assert server._runs_as == replace(nobody(), override=True)


@root_only
def test_existing_data_keep_their_owner(open_folder: Path, state: Path) -> None:
    copy = open_folder / "state"
    subprocess.run(["cp", "-Rp", state, copy], check=True)
    data = next(copy.glob("postgres-*/data"))
    subprocess.run(["chown", "-R", "12345:12345", data], check=True)
    server = start_and_ask(copy)
    assert server._runs_as is not None
    assert server._runs_as.uid == 12345


@root_only
def test_root_without_a_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(StateUnusable, match="there is no user 'nobody'"):
        EmbeddedPostgres(tmp_path).start()


@root_only
def test_unreachable_for_nobody_in_any_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "runs", lambda argv, account: False)
    with pytest.raises(StateUnusable, match="a folder above them is closed to others"):
        EmbeddedPostgres(tmp_path).start()


@root_only
def test_ordinary_user(open_folder: Path, supervise: Supervise) -> None:
    for program in (find_postgres().postgres, find_valkey().path):
        if not runs([program, "--version"], account=nobody()):
            # `nobody` cannot execute what lies below a folder that is closed to others, as root's home often is.
            pytest.skip("the installed servers lie below a folder that is closed to others")
    for _ in range(2):
        owner = supervise(open_folder / "a state", "--as-nobody")
        up = owner.report()
        assert up["owned"], up
        assert sql(up["database_url"], "SELECT 1") == 1
        assert owner.finish() == 0
        assert gone(up["database_url"], up["redis_url"])()
    assert (open_folder / "a state").stat().st_uid == nobody().uid


@root_only
def test_ordinary_user_in_a_folder_of_root(open_folder: Path, supervise: Supervise) -> None:
    (open_folder / "state").mkdir()
    report = supervise(open_folder / "state", "--as-nobody").report()
    assert report["code"] == "embedded_state_unusable"
    assert "Permission denied" in report["text"]


def test_data_of_somebody_else(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with pytest.raises(StateUnusable, match="it belongs to the user with id"):
        EmbeddedPostgres(state).start()
