"""The parts of the suite do what their faults are named for."""

import asyncio
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.__main__ import main
from tests.chaos.bugs import BUGS, without_guard
from tests.chaos.evidence import Evidence
from tests.chaos.judge import RULES, Violation
from tests.chaos.members import APP, Member, NotReady, reports
from tests.chaos.outcome import counted
from tests.chaos.proxy import Link, Links
from tests.chaos.schedule import CARDS, GAP_S, schedule
from tests.chaos.witness import Reporter, Witness
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


@pytest.fixture
def link(server: socket.socket) -> Iterator[tuple[Links, Link]]:
    links = Links()
    yield links, links.open("client -> server", server.getsockname()[1])
    links.close()


def connected(link: Link) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", link.port), 10)
    client.settimeout(10)
    return client


def test_what_is_held_arrives_later_although_its_sender_has_gone(
    server: socket.socket, link: tuple[Links, Link]
) -> None:
    links, proxy = link
    with connected(proxy) as client:
        accepted, _ = server.accept()
        client.sendall(b"before")
        assert accepted.recv(100) == b"before"
        links.do(lambda: setattr(proxy, "to_server", "hold"))
        client.sendall(b"late write")
    accepted.settimeout(0.2)
    with pytest.raises(TimeoutError):
        accepted.recv(100)
    accepted.settimeout(10)
    links.do(proxy.heal)
    assert accepted.recv(100) == b"late write"
    accepted.close()


def test_a_hole_swallows_one_direction_and_leaves_the_other(
    server: socket.socket, link: tuple[Links, Link]
) -> None:
    links, proxy = link
    with connected(proxy) as client:
        accepted, _ = server.accept()
        links.do(lambda: setattr(proxy, "to_client", "hole"))
        accepted.sendall(b"lost answer")
        client.sendall(b"question")
        assert accepted.recv(100) == b"question"
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(100)
        accepted.close()


def test_a_cut_is_a_reset_on_both_sides(server: socket.socket, link: tuple[Links, Link]) -> None:
    links, proxy = link
    with connected(proxy) as client:
        accepted, _ = server.accept()
        client.sendall(b"hello")
        assert accepted.recv(100) == b"hello"
        links.do(proxy.cut)
        for end in (client, accepted):
            with pytest.raises(ConnectionResetError):
                end.recv(100)
        accepted.close()


def test_who_is_refused_is_reset(server: socket.socket, link: tuple[Links, Link]) -> None:
    links, proxy = link
    links.do(lambda: setattr(proxy, "door", "refuse"))
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(100)


async def test_the_witness_writes_reports_and_the_end_of_processes(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    reporter = Reporter(witness.path)
    reporter.tell("model", phase="begin", call="1")
    reporter.close()

    async def gone() -> bool:
        return "gone" in {event.what for event in witness.events()}

    await until(gone, what="the end of the connection on the witness's log")
    witness.close()
    events = witness.events()
    assert [event.what for event in events] == ["here", "model", "gone"]
    assert {event.pid for event in events} == {os.getpid()}
    assert [event.at for event in events] == sorted(event.at for event in events)


def test_a_seed_replays_and_every_fault_comes_before_any_comes_again() -> None:
    faults = schedule(7, seconds=3 * GAP_S * len(CARDS), ttl=3.0)
    assert faults == schedule(7, seconds=3 * GAP_S * len(CARDS), ttl=3.0)
    assert faults != schedule(8, seconds=3 * GAP_S * len(CARDS), ttl=3.0)
    assert {fault.kind for fault in faults[: len(CARDS)]} == {kind for kind, _ in CARDS}


@pytest.mark.parametrize("name", BUGS)
def test_each_deliberate_bug_still_applies(name: str) -> None:
    assert without_guard(BUGS[name])
    assert BUGS[name].found_by <= set(RULES)


async def test_links_may_be_harmed_from_a_running_loop(link: tuple[Links, Link]) -> None:
    links, proxy = link
    links.do(lambda: setattr(proxy, "delay", 0.1))
    await asyncio.to_thread(links.heal)
    assert proxy.delay == 0.0


def test_errors_in_a_log_are_reported_and_a_bare_traceback_whole() -> None:
    info, error = '{"event": "claimed", "level": "info"}', '{"event": "attempt_broken", "level": "error"}'
    bare = ["Traceback (most recent call last):", '  File "x.py", line 1, in y', "KeyError: 1"]
    assert list(reports([info, *bare, error, info])) == ["\n".join(bare), error]


async def test_who_does_not_get_ready_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.members.START_S_MAX", 0.0)
    member = Member("worker1", ["worker", APP], env=os.environ, folder=tmp_path)
    member.start()
    with pytest.raises(NotReady, match="worker1"):
        await member.ready()
    member.kill()


@pytest.mark.parametrize(("rule", "code"), [("nothing is stuck", 0), ("no write of a zombie", 1)])
def test_the_exit_code_says_whether_a_bug_was_seen(
    rule: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = Evidence(ttl=3.0)
    outcome = replace(counted(evidence, seed=1, seconds=1.0, spent={}), violations=[Violation(rule, "", "")])
    monkeypatch.setattr("tests.chaos.__main__.fought", lambda plan: (outcome, evidence))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["chaos", "--bug", "no token in record", "--out", str(tmp_path / "out")])
    assert main() == code
