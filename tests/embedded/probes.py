"""What the tests of the embedded servers ask, and the other process they ask it of."""

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import redis

from threadhold.adapters.embedded import Servers
from threadhold.adapters.embedded.loopback import accepts

_SCRIPT = Path(__file__).with_name("supervisor.py")


def sql(url: str, statement: str) -> Any:
    """Return the one value that the last of the statements yields, over a connection of its own."""

    async def ask() -> Any:
        connection = await asyncpg.connect(url)
        try:
            *before, last = statement.split(";")
            for one in before:
                await connection.execute(one)
            return await connection.fetchval(last)
        finally:
            await connection.close()

    return asyncio.run(ask())


def command(url: str, *words: str) -> Any:
    """Return the answer to one Redis command, over a connection of its own."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.execute_command(*words)


def remember(database_url: str, redis_url: str) -> tuple[str, str]:
    """Write a row and a key that a restart must not lose, and return them."""
    row, key = uuid.uuid4().hex, uuid.uuid4().hex
    sql(database_url, f"DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT '{row}' AS what")
    command(redis_url, "SET", "kept", key)
    # The server syncs its log once a second; it answers this when it has.
    command(redis_url, "WAITAOF", "1", "0", "5000")
    return row, key


def remembered(servers: Servers) -> tuple[str, str]:
    """Return the row and the key."""
    return sql(servers.database_url, "SELECT what FROM kept"), command(servers.redis_url, "GET", "kept")


def recorded_pids(state: Path) -> list[int]:
    """Return the process ids of the servers in a state folder."""
    files = [*state.glob("postgres-*/data/postmaster.pid"), *state.glob("valkey-*/server.pid")]
    return [int(path.read_text().split()[0]) for path in files]


def port_of(url: str) -> int:
    """Return the port in a URL."""
    port = urlsplit(url).port
    assert port is not None
    return port


def eventually(holds: Callable[[], bool], *, within_s: float) -> bool:
    """Tell whether a condition comes true in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def gone(*urls: str) -> Callable[[], bool]:
    """Return the condition that none of the servers accepts connections."""
    return lambda: not any(accepts(port_of(url)) for url in urls)


class Supervisor:
    """Another process with the embedded servers; see supervisor.py for the flags."""

    def __init__(self, state: Path, *flags: str, import_path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, _SCRIPT, state, *flags],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(import_path), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def report(self) -> dict[str, Any]:
        """Wait for its report: the servers' URLs, or the error."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        report: dict[str, Any] = json.loads(line)
        return report

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Kill it with SIGKILL; what it has forked or started is not touched."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> int:
        """Let it stop its servers; return its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(30)
