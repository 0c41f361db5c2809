"""Databases that tests take away and bring back: stopped, killed, or failed over to a standby."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.chaos.databases import Databases, family
from tests.chaos.proxy import Links
from tests.support.ports import KeptPort
from threadhold.adapters.embedded import EmbeddedPostgres


class Store(Protocol):
    """A Postgres at one URL, which it keeps."""

    url: str

    def go(self) -> None:
        """Be away."""
        ...

    def come(self) -> None:
        """Be there again, with everything that was acknowledged."""
        ...

    def close(self) -> None:
        """End."""
        ...


class Restarted:
    """Stopped in an orderly way, and started again."""

    def __init__(self, folder: Path) -> None:
        self._port = KeptPort()
        self._server = EmbeddedPostgres(folder / "store", port=self._port.number)
        self._server.start()
        self.url = self._server.url

    def go(self) -> None:
        """Stop."""
        self._server.stop()

    def come(self) -> None:
        """Start."""
        self._server.start()

    def close(self) -> None:
        """Stop for good."""
        self._server.stop()


class Killed(Restarted):
    """Killed with all its processes, and started again."""

    def go(self) -> None:
        """Kill the parent first, so that it makes no new ones."""
        pid = int((self._server.data / "postmaster.pid").read_text().split()[0])
        for each in family(pid):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


class FailedOver:
    """Killed for ever; its standby, which has every commit that was acknowledged, takes its place."""

    def __init__(self, folder: Path) -> None:
        self._servers = Databases(folder / "store")
        self._links = Links()
        self._link = self._links.open("postgres", self._servers.port)
        self.url = self._servers.url.replace(f":{self._servers.port}/", f":{self._link.port}/")

    def go(self) -> None:
        """Kill the primary."""
        self._servers.kill()

    def come(self) -> None:
        """Promote the standby."""
        self._servers.fail_over()
        self._link.upstream = self._servers.port

    def close(self) -> None:
        """End all."""
        self._links.close()
        self._servers.close()
