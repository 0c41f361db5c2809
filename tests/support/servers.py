"""One Postgres and one Valkey for the whole test session, each test isolated in them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

import asyncpg

from threadhold.adapters.embedded import EmbeddedPostgres, EmbeddedValkey
from threadhold.adapters.settings import Settings
from threadhold.storage.migrate import migrate

# A test's server holds nothing that a power cut could take; the tests that kill servers start their own.
FAST = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Stack:
    """What one test has to itself: a database made from the template, and a prefix in the shared Valkey."""

    database_url: str
    redis_url: str
    prefix: str

    def settings(self, **changes: object) -> Settings:
        """Return settings for processes within the test."""
        fields = {
            "database_url": self.database_url,
            "redis_url": self.redis_url,
            "prefix": self.prefix,
            **changes,
        }
        return Settings.model_validate(fields)

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment for processes that the test starts."""
        ours = {
            "THREADHOLD_DATABASE_URL": self.database_url,
            "THREADHOLD_REDIS_URL": self.redis_url,
            "THREADHOLD_PREFIX": self.prefix,
        }
        return {**os.environ, **ours, **changes}


class TestServers:
    """Starts the servers and hands out stacks."""

    __test__ = False

    def __init__(self, state: Path) -> None:
        self._postgres = EmbeddedPostgres(state, settings=FAST)
        self._valkey = EmbeddedValkey(state)
        self.redis_url = ""
        self._free: list[str] = []

    def __enter__(self) -> Self:
        self._postgres.start()
        self._valkey.start()
        self.redis_url = self._valkey.url
        return self

    def __exit__(self, *exc: object) -> None:
        self._valkey.stop()
        self._postgres.stop()

    async def make_template(self) -> None:
        """Migrate the database that every test's own is copied from."""
        await self._admin('CREATE DATABASE "template_threadhold"')
        await migrate(self._url("template_threadhold"))

    async def new_stack(self) -> Stack:
        """Hand out an emptied database of an earlier test, or copy the template (which takes much longer)."""
        if self._free:
            name = self._free.pop()
        else:
            name = f"t_{uuid4().hex}"
            await self._admin(f'CREATE DATABASE "{name}" TEMPLATE "template_threadhold"')
        return Stack(self._url(name), self.redis_url, f"t{uuid4().hex[:8]}:")

    async def new_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"e_{uuid4().hex}"
        await self._admin(f'CREATE DATABASE "{name}"')
        return self._url(name)

    async def take_back(self, stack: Stack) -> None:
        """Empty a test's database for the next one, whoever is still connected."""
        name = stack.database_url.rpartition("/")[2]
        connection = await asyncpg.connect(stack.database_url)
        try:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = $1 AND pid <> pg_backend_pid()",
                name,
            )
            await connection.execute("TRUNCATE threadhold.workspaces, threadhold.workers CASCADE")
        finally:
            await connection.close()
        self._free.append(name)

    def _url(self, name: str) -> str:
        return f"{self._postgres.url.rpartition('/')[0]}/{name}"

    async def _admin(self, statement: str) -> None:
        connection = await asyncpg.connect(self._postgres.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
