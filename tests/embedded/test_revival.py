"""Ports outlive their servers, so that whoever was connected finds the next one; who dies is started again."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.embedded.probes import command, eventually, recorded_pids, remember, remembered
from threadhold.adapters.embedded import (
    EmbeddedPostgres,
    EmbeddedValkey,
    PortInUse,
    ServerKeepsDying,
    Servers,
    start_servers,
)
from threadhold.adapters.embedded.patience import RECOVERED_S, RESTARTS_MAX, Patience


def valkey_only(state: Path) -> Servers:
    return start_servers(state, database_url="postgresql://db/x", redis_url=None)


def kill(servers: Servers, *pids: int) -> None:
    """Kill servers as a crash would, and return when their owner can know."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not any(server.running for server in servers._started), within_s=10)
    assert not servers.running


def valkey_pid(state: Path) -> int:
    (pid,) = recorded_pids(state)
    return pid


@pytest.mark.parametrize("kind", [EmbeddedPostgres, EmbeddedValkey])
def test_port_is_kept_over_a_restart(
    state: Path, kind: type[EmbeddedPostgres] | type[EmbeddedValkey]
) -> None:
    first = kind(state)
    first.start()
    first.stop()
    second = kind(state)
    second.start()
    assert second.port == first.port
    second.stop()


def test_remembered_port_that_somebody_else_has_is_replaced(tmp_path: Path) -> None:
    first = EmbeddedValkey(tmp_path)
    first.start()
    first.stop()
    with socket.create_server(("127.0.0.1", first.port)):
        second = EmbeddedValkey(tmp_path)
        second.start()
        assert second.port != first.port
        assert command(second.url, "PING") is True
        second.stop()
    third = EmbeddedValkey(tmp_path)  # The latest port is the one that counts.
    third.start()
    assert third.port == second.port
    third.stop()


@pytest.mark.parametrize("text", ["", "many", "-1", "0", "65536", "é"])
def test_damaged_memory_of_the_port_is_no_obstacle(tmp_path: Path, text: str) -> None:
    valkey = EmbeddedValkey(tmp_path)
    valkey.folder.mkdir(parents=True)
    (valkey.folder / "port").write_text(text)
    assert valkey._remembered_port() is None


def test_killed_servers_come_back_with_port_and_data(state: Path) -> None:
    with start_servers(state, database_url=None, redis_url=None) as up:
        kept = remember(up.database_url, up.redis_url)
        assert up.running
        assert up.revive() == []
        kill(up, *recorded_pids(state))
        revivals = up.revive()
        assert [(one.server, one.restarts, one.failure) for one in revivals] == [
            ("Postgres", 1, None),
            ("Valkey", 1, None),
        ]
        assert up.running
        assert remembered(up) == kept


def test_revive_from_a_thread_that_ends(tmp_path: Path) -> None:
    with valkey_only(tmp_path) as up:
        kill(up, valkey_pid(tmp_path))
        thread = threading.Thread(target=up.revive)
        thread.start()
        thread.join()
        assert command(up.redis_url, "PING") is True


def test_nothing_is_revived_after_the_stop(tmp_path: Path) -> None:
    up = valkey_only(tmp_path)
    up.stop()
    assert up.revive() == []
    assert not up.running


def test_guest_revives_nothing(tmp_path: Path) -> None:
    with valkey_only(tmp_path) as owner, valkey_only(tmp_path) as guest:
        assert guest.owner_pid == os.getpid()
        kill(owner, valkey_pid(tmp_path))
        assert guest.running
        assert guest.revive() == []


def test_port_that_is_lost_meanwhile_is_waited_for(tmp_path: Path) -> None:
    with valkey_only(tmp_path) as up:
        port = up._started[0].port
        kill(up, valkey_pid(tmp_path))
        with socket.create_server(("127.0.0.1", port)):
            (failed,) = up.revive()
        assert isinstance(failed.failure, PortInUse)
        (second,) = up.revive()
        assert (second.restarts, second.failure) == (2, None)
        assert command(up.redis_url, "PING") is True


def test_server_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    with valkey_only(tmp_path) as up:
        for _ in range(RESTARTS_MAX):
            kill(up, valkey_pid(tmp_path))
            assert [one.failure for one in up.revive()] == [None]
        kill(up, valkey_pid(tmp_path))
        with pytest.raises(ServerKeepsDying, match=r"Valkey died, and 5 restarts did not last") as refusal:
            up.revive()
        log = next(tmp_path.glob("*/server.log"))
        assert (refusal.value.code, refusal.value.log) == ("embedded_gave_up", log)
        assert str(log) in str(refusal.value)


def test_server_that_cannot_be_started_again_is_given_up_with_the_reason(tmp_path: Path) -> None:
    with valkey_only(tmp_path) as up:
        port = up._started[0].port
        kill(up, valkey_pid(tmp_path))
        with socket.create_server(("127.0.0.1", port)):
            failures = [one.failure for _ in range(RESTARTS_MAX) for one in up.revive()]
            assert all(isinstance(failure, PortInUse) for failure in failures)
            with pytest.raises(ServerKeepsDying, match=f"port {port} on 127.0.0.1 is in use") as refusal:
                up.revive()
        assert refusal.value.failure is failures[-1]


def test_patience_begins_anew_after_a_calm_minute() -> None:
    patience = Patience()
    now = 100.0
    for restart in range(1, RESTARTS_MAX + 1):
        assert patience.spend(now) == restart
        patience.succeeded(now)
        now += RECOVERED_S - 1
    assert patience.spend(now) is None
    assert patience.spend(now + RECOVERED_S) is None  # It is dead all the time: that is not calm.
    patience = Patience()
    assert patience.spend(now) == 1
    patience.succeeded(now)
    assert patience.spend(now + RECOVERED_S) == 1
    assert patience.spend(now + 10 * RECOVERED_S) == 2  # The restart before has failed, however long it took.
