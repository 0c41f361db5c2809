"""Connections to Redis or Valkey, with the time that each kind of use may take."""

import asyncio
from typing import Any, Final, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

# A redis.asyncio.Redis. The driver's own types are partial, and the separate stubs describe another version.
Client: TypeAlias = Any

CONNECT_MAX: Final = 1.0
COMMAND_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 64
_CLOSED: Final = "the handler is closed"


def connect(url: str) -> Client:
    """Return a client for commands, which is quick to say that Redis is away.

    A lost connection is tried once more; a refused one costs milliseconds, an unreachable host a second, a
    command on a frozen server five.
    """
    # Not a command that timed out: it has cost its caller enough. A server that has become a replica is left, as the
    # name in the URL may lead to the new primary.
    errors = (RedisConnectionError, ReadOnlyError)
    retry = Retry(ExponentialBackoff(cap=0.05, base=0.05), 1, supported_errors=errors)
    return _client(url, socket_timeout=COMMAND_MAX, retry=retry, retry_on_error=list(errors))


def connect_subscriber(url: str) -> Client:
    """Return a client whose connections may be silent for ever, and are never renewed behind our back."""
    return _client(
        url,
        socket_timeout=None,
        retry=Retry(NoBackoff(), 0),
    )


def _client(url: str, **options: Any) -> Client:
    if not url.startswith("unix:"):
        options["socket_keepalive"] = True
    # Who finds all connections in use waits as long as for a new one. The driver's plain pool has no bound, and lets
    # everybody wait while one connects.
    pool: Any = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS_MAX,
        timeout=CONNECT_MAX,
        socket_connect_timeout=CONNECT_MAX,
        **options,
    )
    pool.connection_class = type("Connection", (_Translated, pool.connection_class), {})
    return Redis.from_pool(pool)


class _Translated:
    """A connection that calls a lost connection lost, and ends when its task is cancelled.

    Where asyncio's own loop says that a connection was reset, uvloop says that a handler is closed, and the driver
    takes that for a fault of the program. And it sends with `asyncio.wait_for`, which before Python 3.12 forgets a
    cancellation that comes when the sending is done.
    """

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        """Send a command.

        Raises:
            redis.exceptions.ConnectionError: the connection is lost; the driver tries another one.
        """
        task: Any = asyncio.current_task()
        cancelled_before = task.cancelling()
        try:
            await super().send_packed_command(*args, **options)  # type: ignore[misc]
        except RuntimeError as error:
            if _CLOSED not in str(error):
                raise
            raise RedisConnectionError("the connection was closed by the other side") from error
        if task.cancelling() > cancelled_before:
            # An answer is under way that nobody will read.
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]
            raise asyncio.CancelledError
