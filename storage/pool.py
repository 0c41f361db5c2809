"""The connections to Postgres, and the one way to run a named statement."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from threadhold.storage.errors import translated
from threadhold.storage.sql import statements

# Deciding statements wait for a thread's lock and a commit; longer than this means that something is wrong.
STATEMENT_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0
# Who waits longer for a connection is told that the database is overloaded, rather than queue without end.
ACQUIRE_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """How the connections of a pool are used; `waiting` counts who waits for one."""

    size_max: int
    idle: int
    in_use: int
    waiting: int


class Database:
    """A pool of connections to one database and schema.

    Args:
        url: a Postgres URL.
        schema: where the tables live; two stacks may share a database under two names.
        size: the most connections this process opens; more only queue in the server.
    """

    def __init__(self, url: str, *, schema: str = "threadhold", size: int = 10) -> None:
        self.url = url
        self.schema = schema
        self._size = size
        self._statements = statements(schema)
        self._pool: Any = None
        self._waiting = 0

    async def open(self) -> None:
        """Open the pool.

        Raises:
            Unavailable: if the database cannot be reached.
        """
        with translated():
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=self._size,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S,
                reset=_nothing_to_reset,
                server_settings={"application_name": "threadhold"},
            )

    async def close(self) -> None:
        """Close the pool, at once if a connection does not come back."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    def stats(self) -> PoolStats:
        """Return how the connections are used now."""
        size, idle = (0, 0) if self._pool is None else (self._pool.get_size(), self._pool.get_idle_size())
        return PoolStats(size_max=self._size, idle=idle, in_use=size - idle, waiting=self._waiting)

    async def rows(self, name: str, *args: Any) -> list[Any]:
        """Run a named statement and return its rows."""
        with translated():
            async with self._connection() as connection:
                return list(await connection.fetch(self._statements[name], *args))

    async def row(self, name: str, *args: Any) -> Any:
        """Run a named statement and return its first row, or None."""
        with translated():
            async with self._connection() as connection:
                return await connection.fetchrow(self._statements[name], *args)

    async def run(self, name: str, *args: Any) -> None:
        """Run a named statement."""
        with translated():
            async with self._connection() as connection:
                await connection.execute(self._statements[name], *args)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._pool is None:
            raise asyncpg.InterfaceError("the pool is closed")
        pool = self._pool
        self._waiting += 1
        try:
            connection = await pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        finally:
            self._waiting -= 1
        try:
            yield connection
        except (TimeoutError, asyncio.CancelledError):
            # A server that hangs would not answer the cancellation either, and who gave up should not wait for it.
            connection.terminate()
            raise
        finally:
            await pool.release(connection)


async def _nothing_to_reset(connection: Any) -> None:
    """Spare a round trip per statement: ours leave nothing behind in a session."""


async def connect(url: str) -> "asyncpg.Connection[asyncpg.Record]":
    """Open a connection of one's own, outside the pool.

    Raises:
        Unavailable: if the database cannot be reached.
    """
    with translated():
        return await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S)
