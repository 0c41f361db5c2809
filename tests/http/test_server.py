"""Listening, and how the server ends."""

import asyncio
import socket
import sys

import pytest

from tests.http.scripted import serving
from threadhold.adapters.http.server import ListenError, PortInUse, listen


def test_a_port_in_use_is_told_before_anything_starts() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use; .*--port") as refused:
            listen("127.0.0.1", port)
    assert refused.value.code == "port_in_use"
    assert refused.value.port == port


def test_a_port_is_free_again_at_once() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
    with listen("127.0.0.1", port) as second:
        assert second.getsockname()[1] == port


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 70_000), ("no such host", 0)])
def test_where_one_cannot_listen(host: str, port: int) -> None:
    with pytest.raises(ListenError, match="cannot listen on") as refused:
        listen(host, port)
    assert refused.value.code == "cannot_listen"


def test_ipv6_works_where_the_machine_has_it() -> None:
    try:
        listening = listen("::1", 0)
    except ListenError:
        return
    with listening:
        assert listening.family is socket.AF_INET6


def test_connections_inherit_that_stalled_peers_are_dropped() -> None:
    if sys.platform != "linux":
        return
    with listen("127.0.0.1", 0) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        # Linux doubles what it is given.
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 128 * 1024


async def test_it_ends_when_told_and_frees_its_port() -> None:
    async with serving() as api:
        assert (await api.client.get("/healthz")).status_code == 200
        port = api.server.port
        assert api.server.should_exit is False
        api.server.should_exit = True
        await asyncio.wait_for(api.serving, 3)
        assert api.drain.is_set()
        listen("127.0.0.1", port).close()


async def test_a_request_before_the_server_is_up_waits_for_it() -> None:
    async with serving() as api:
        # Nothing has run in this loop since the server's task was made.
        assert (await api.client.get("/healthz")).json() == {"status": "ok"}
