"""Owners and servers that are killed: nothing stays behind, nothing is lost, the next start works."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.embedded.conftest import Supervise
from tests.embedded.probes import command, eventually, gone, recorded_pids, remember, remembered, sql
from threadhold.adapters.embedded import EmbeddedPostgres, EmbeddedValkey, server, start_servers

# It takes a fraction of a second; the rest is for a machine that is busy with something else. A server that is not told
# of the death of its owner would go on for ever.
GONE_S_MAX = 30.0


@pytest.mark.parametrize("flag", ["--in-thread", "--without-setpriv"])
def test_servers_die_with_their_owner(open_state: Path, supervise: Supervise, flag: str) -> None:
    owner = supervise(open_state, flag)
    up = owner.report()
    kept = remember(up["database_url"], up["redis_url"])
    owner.kill()
    assert eventually(gone(up["database_url"], up["redis_url"]), within_s=GONE_S_MAX)
    with start_servers(open_state, database_url=None, redis_url=None) as again:
        assert again.owned
        assert remembered(again) == kept


def test_start_right_after_the_owner_was_killed(state: Path, supervise: Supervise) -> None:
    owner = supervise(state)
    up = owner.report()
    kept = remember(up["database_url"], up["redis_url"])
    owner.kill()
    with start_servers(state, database_url=None, redis_url=None) as again:
        assert remembered(again) == kept


def test_data_survive_the_death_of_everything(state: Path, supervise: Supervise) -> None:
    owner = supervise(state)
    up = owner.report()
    kept = remember(up["database_url"], up["redis_url"])
    pids = recorded_pids(state)
    owner.kill()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # It was quick to follow its owner.
            os.kill(pid, signal.SIGKILL)
    with start_servers(state, database_url=None, redis_url=None) as again:
        assert remembered(again) == kept


def test_half_created_database_is_thrown_away(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path)
    half = postgres.folder / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    postgres.start()
    assert sql(postgres.url, "SELECT 1") == 1
    postgres.stop()
    assert not half.exists()


def test_ctrl_c_reaches_the_owner_only(state: Path, supervise: Supervise) -> None:
    owner = supervise(state, "--ignore-sigint")
    up = owner.report()
    os.killpg(owner.pid, signal.SIGINT)
    assert sql(up["database_url"], "SELECT 1") == 1
    assert command(up["redis_url"], "PING") is True
    sessions = {os.getsid(pid) for pid in recorded_pids(state)}
    assert len(sessions) == 2
    assert os.getsid(owner.pid) not in sessions
    assert owner.finish() == 0
    assert gone(up["database_url"], up["redis_url"])()


@pytest.mark.parametrize("flags", [(), ("--without-setpriv",)])
def test_forked_copy_of_the_owner_neither_stops_nor_keeps_anything(
    open_state: Path, supervise: Supervise, flags: tuple[str, ...]
) -> None:
    owner = supervise(open_state, "--fork", *flags)
    up = owner.report()
    assert sql(up["database_url"], "SELECT 1") == 1
    owner.kill()  # The copy lives on; its standard input is still open.
    assert eventually(gone(up["database_url"], up["redis_url"]), within_s=GONE_S_MAX)
    with start_servers(open_state, database_url=None, redis_url=None) as again:
        assert again.owned


@pytest.mark.parametrize("kind", [EmbeddedPostgres, EmbeddedValkey])
def test_server_without_owner_and_without_signal_is_replaced(
    state: Path, kind: type[EmbeddedPostgres] | type[EmbeddedValkey], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_ORPHAN_GRACE_S", 0.05)
    orphan = kind(state)
    orphan.start()
    lines: list[str] = []
    for (
        lock
    ) in orphan._locks:  # This process no longer owns it; it has not died either, so no signal was sent.
        lock.close()
    heir = kind(state, progress=lines.append)
    heir.start()
    assert not orphan.running
    assert lines == [f"waiting for the previous {heir._title} to end"]
    heir.stop()


def test_pid_file_that_names_a_stranger_is_no_obstacle(state: Path) -> None:
    postgres = EmbeddedPostgres(state)
    pid_file = postgres.data / "postmaster.pid"
    pid_file.write_text(
        f"{os.getppid()}\n{postgres.data}\n1\n5432\n\n127.0.0.1\n        0         0\nready\n"
    )
    postgres.start()
    assert sql(postgres.url, "SELECT 1") == 1
    postgres.stop()
