"""Both servers: started, shared, stopped, and their data kept."""

import socket
import threading
from pathlib import Path

import pytest
import redis

from tests.embedded.conftest import Supervise
from tests.embedded.probes import command, eventually, gone, port_of, remember, remembered, sql
from threadhold.adapters.embedded import (
    EmbeddedPostgres,
    EmbeddedValkey,
    Servers,
    StateInUse,
    servers,
    start_servers,
)
from threadhold.adapters.embedded.locks import FileLock


def both(state: Path) -> Servers:
    return start_servers(state, database_url=None, redis_url=None)


def valkey_only(state: Path) -> Servers:
    """Return what takes the same paths as both, but sooner."""
    return start_servers(state, database_url="postgresql://db/x", redis_url=None)


def test_first_start_creates_everything_silently(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with start_servers(
        tmp_path / "new" / "state", database_url=None, redis_url=None, progress=lines.append
    ) as up:
        assert up.owned
        assert not up.attached
        assert sql(up.database_url, "SHOW max_connections") == "200"
        assert sql(up.database_url, "SHOW shared_buffers") == "128MB"
        assert sql(up.database_url, "SHOW listen_addresses") == "127.0.0.1"
        assert sql(up.database_url, "SHOW server_encoding") == "UTF8"
        assert command(up.redis_url, "CONFIG", "GET", "appendonly") == ["appendonly", "yes"]
        assert command(up.redis_url, "CONFIG", "GET", "maxmemory") == ["maxmemory", str(512 * 1024 * 1024)]
    assert lines == ["creating the database (first start only)"]
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "new" / "state" / ".gitignore").read_text() == "*\n"


def test_data_are_kept_over_an_orderly_restart(state: Path) -> None:
    with both(state) as first:
        kept = remember(first.database_url, first.redis_url)
    assert gone(first.database_url, first.redis_url)()
    with both(state) as second:
        assert remembered(second) == kept
    assert "database system is shut down" in (next(state.glob("postgres-*")) / "server.log").read_text()


def test_second_starter_attaches_and_leaves_the_servers_alone(state: Path) -> None:
    with both(state) as owner:
        with both(state) as guest:
            assert guest.attached
            assert not guest.owned
            assert (guest.database_url, guest.redis_url) == (owner.database_url, owner.redis_url)
        assert sql(owner.database_url, "SELECT 1") == 1
        assert command(owner.redis_url, "PING") is True
    assert not (state / "servers.json").exists()
    owner.stop()  # Once more does nothing.


def test_of_many_starters_one_owns(state: Path, supervise: Supervise) -> None:
    reports = [supervisor.report() for supervisor in [supervise(state) for _ in range(3)]]
    assert sorted(report["owned"] for report in reports) == [False, False, True]
    assert len({report["database_url"] for report in reports}) == 1
    assert len({report["redis_url"] for report in reports}) == 1


def test_starter_that_waits_takes_over_when_the_owner_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def attach(*arguments: object) -> None:
        waits.set()

    monkeypatch.setattr(servers, "_attach", attach)
    owner = FileLock(tmp_path / "lock")
    assert owner.try_acquire()
    found: list[Servers] = []
    starter = threading.Thread(target=lambda: found.append(valkey_only(tmp_path)))
    starter.start()
    assert waits.wait(30)
    owner.close()
    starter.join()
    assert found[0].owned
    found[0].stop()


def test_addresses_of_a_killed_owner_are_not_believed(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"database_url": null, "redis_url": "redis://127.0.0.1:1/0", "o')
    with valkey_only(tmp_path) as up, valkey_only(tmp_path) as guest:
        assert guest.redis_url == up.redis_url


def test_urls_of_ones_own_start_nothing(tmp_path: Path) -> None:
    with start_servers(
        tmp_path / "state", database_url="postgresql://db/x", redis_url="redis://cache/0"
    ) as up:
        assert (up.database_url, up.redis_url) == ("postgresql://db/x", "redis://cache/0")
        assert not up.owned
        assert not up.attached
    assert not (tmp_path / "state").exists()


def test_only_what_has_no_url_is_started(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with start_servers(state, database_url="postgresql://db/x", redis_url=None) as up:
        assert up.owned
        assert up.database_url == "postgresql://db/x"
        assert command(up.redis_url, "PING") is True
        assert not list(state.glob("postgres-*"))
        with start_servers(state, database_url="postgresql://other/y", redis_url=None) as guest:
            assert (guest.database_url, guest.redis_url) == ("postgresql://other/y", up.redis_url)
        with pytest.raises(StateInUse, match="runs no Postgres") as refusal:
            both(state)
    assert refusal.value.code == "embedded_state_in_use"


def test_path_may_be_long_and_have_spaces(tmp_path: Path, state: Path) -> None:
    awkward = tmp_path / "with a space" / ("long" * 40) / "état"
    awkward.parent.mkdir(parents=True)
    state.rename(awkward)
    for _ in range(2):
        with both(awkward) as up:
            assert sql(up.database_url, "SELECT 1") == 1
            assert command(up.redis_url, "PING") is True
    awkward.rename(state)


def test_state_may_be_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = EmbeddedValkey(Path("state"))
    server.start()
    assert command(server.url, "PING") is True
    server.stop()
    assert (tmp_path / "state").is_dir()


def test_stalled_subscriber_is_cut(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path, settings={"client-output-buffer-limit": "pubsub 4mb 0 0"})
    server.start()
    payload = b"x" * 100_000
    with socket.create_connection(("127.0.0.1", server.port)) as stalled:
        stalled.sendall(b"SUBSCRIBE news\r\n")
        stalled.recv(1)
        with redis.Redis.from_url(server.url) as client:
            # The buffers of the sockets take a few megabytes as well; 300 of these messages are 30.
            assert not all(client.publish("news", payload) for _ in range(300))
    server.stop()


def test_port_and_settings_can_be_chosen(state: Path) -> None:
    postgres = EmbeddedPostgres(state, settings={"work_mem": "7MB", "max_connections": "20"})
    postgres.start()
    assert sql(postgres.url, "SHOW work_mem") == "7MB"
    assert sql(postgres.url, "SHOW max_connections") == "20"
    port = postgres.port
    postgres.stop()
    again = EmbeddedPostgres(state, port=port)
    again.start()
    assert port_of(again.url) == port
    again.stop()


def test_server_that_died_can_be_started_again(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    server.start()
    server.start()  # It runs already: nothing happens.
    with pytest.raises(redis.ConnectionError):
        command(server.url, "SHUTDOWN", "NOSAVE")
    assert eventually(lambda: not server.running, within_s=10)
    server.start()
    assert command(server.url, "PING") is True
    server.stop()
    assert not server.running


class EndsBetweenTwoLooks:
    """A child that runs at the first look and has ended well at the second."""

    def __init__(self) -> None:
        self._looks = 0

    def returncode(self) -> int | None:
        self._looks += 1
        return None if self._looks == 1 else 0

    @property
    def alive(self) -> bool:
        return self.returncode() is None


def test_a_step_that_ends_between_two_looks_has_not_failed(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    server._child = EndsBetweenTwoLooks()  # type: ignore[assignment]
    assert server._wait_until(lambda child: child.returncode() == 0, began_at=0) is None
    server._child = None
