"""A connection that the other side has reset is lost, not a fault of ours, whichever loop runs."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.support.waiting import until
from threadhold.fanout import connections
from threadhold.fanout.connections import CONNECTIONS_MAX, connect

Run = Callable[[Coroutine[Any, Any, None]], None]
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Server:
    """Answers pings, in threads, and resets its first connection when it is told to."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.connections.append(self._listening.accept()[0])
                threading.Thread(target=self._answer, args=self.connections[-1:], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while command := connection.recv(1000):
                names = [part for part in command.split(b"\r\n") if part in (b"PING", b"CLIENT")]
                connection.sendall(
                    b"".join(b"+PONG\r\n" if name == b"PING" else b"+OK\r\n" for name in names)
                )

    def reset(self) -> None:
        """Reset the first connection, as a server that was killed does."""
        self.connections[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.connections[0].shutdown(socket.SHUT_RD)
        self.connections[0].close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        for each in (self._listening, *self.connections):
            each.close()


async def ping_over_a_reset_connection() -> None:
    server = Server()
    client = connect(server.url)
    assert await client.ping()
    [connection] = client.connection_pool._available_connections
    server.reset()

    async def seen() -> bool:
        return bool(connection._reader.exception() or connection._reader.at_eof())

    await until(seen, what="the reset was not seen")
    assert await client.ping()
    assert len(server.connections) == 2
    await client.aclose()
    server.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_command_on_a_connection_that_was_reset_is_tried_on_another(run: Run) -> None:
    run(ping_over_a_reset_connection())


@pytest.mark.parametrize("url", ["redis://h", "rediss://h", "unix:///tmp/s"])
async def test_every_kind_of_connection_says_lost_when_it_is_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect(url).connection_pool.make_connection()
    errors = [RuntimeError("unable to write; the handler is closed"), RuntimeError("a bug")]

    async def fail(*args: Any, **options: Any) -> None:
        raise errors.pop(0)

    monkeypatch.setattr("redis.asyncio.connection.AbstractConnection.send_packed_command", fail)
    with pytest.raises(RedisConnectionError, match="closed by the other side"):
        await connection.send_packed_command(b"")
    with pytest.raises(RuntimeError, match="a bug"):
        await connection.send_packed_command(b"")


async def test_a_crowd_of_commands_shares_a_bounded_number_of_connections(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long it takes to make all of these connections, and to wait in line for one.
    monkeypatch.setattr(connections, "CONNECT_MAX", 60.0)
    client, other = connect(redis_url), connect(redis_url)
    crowd = [asyncio.create_task(client.blpop([f"nobody {n}"])) for n in range(2 * CONNECTIONS_MAX)]

    async def all_blocked() -> bool:
        blocked: int = (await other.info("clients"))["blocked_clients"]
        return blocked >= CONNECTIONS_MAX

    await until(all_blocked, what="the connections are not all in use")
    assert len(client.connection_pool._in_use_connections) == CONNECTIONS_MAX
    for task in crowd:
        task.cancel()
    await asyncio.wait(crowd)
    assert await client.ping()
    await client.aclose()
    await other.aclose()
