"""What can go wrong with the embedded servers, as errors that say what to do.

EmbeddedError
    BinariesMissing
    DataOfAnotherVersion
    PortInUse
    ServerDidNotStart
    ServerKeepsDying
    StateInUse
    StateUnusable
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

# Every message can end in the same way out: servers of one's own need no state folder at all.
_OWN_SERVERS = "or give the URLs of servers of your own"


class EmbeddedError(Exception):
    """An embedded server cannot be used; `code` is stable, the text says what to do."""

    code: ClassVar[str] = "embedded"


class BinariesMissing(EmbeddedError):
    """Nothing that could be started was found."""

    code = "embedded_binaries_missing"

    def __init__(self, *, server: str, package: str, looked_in: Sequence[str]) -> None:
        super().__init__(server, package, tuple(looked_in))
        self.server = server
        self.package = package
        self.looked_in = tuple(looked_in)

    def __str__(self) -> str:
        places = ", ".join(self.looked_in)
        return (
            f"no {self.server} program was found (looked in: {places}). "
            f"Install the package {self.package!r}, {_OWN_SERVERS}."
        )


class DataOfAnotherVersion(EmbeddedError):
    """The state folder holds a database that the Postgres found here cannot read."""

    code = "embedded_data_version"

    def __init__(self, *, data: Path, data_major: str, binary: Path, binary_major: int) -> None:
        super().__init__(data, data_major, binary, binary_major)
        self.data = data
        self.data_major = data_major
        self.binary = binary
        self.binary_major = binary_major

    def __str__(self) -> str:
        return (
            f"{self.data} was written by Postgres {self.data_major}, but {self.binary} is Postgres "
            f"{self.binary_major}. Install Postgres {self.data_major} again, or move that folder away to "
            f"begin with an empty database, {_OWN_SERVERS}."
        )


class PortInUse(EmbeddedError):
    """Somebody else listens on the port that was asked for."""

    code = "embedded_port_in_use"

    def __init__(self, *, server: str, port: int) -> None:
        super().__init__(server, port)
        self.server = server
        self.port = port

    def __str__(self) -> str:
        return (
            f"port {self.port} on 127.0.0.1 is in use, so {self.server} cannot listen there. "
            "Stop what listens there, choose another port, or leave the port out to get a free one."
        )


class ServerDidNotStart(EmbeddedError):
    """The server ended, or did not answer in time; carries the end of its log."""

    code = "embedded_server_did_not_start"

    def __init__(self, *, server: str, reason: str, log: Path, last_lines: Sequence[str]) -> None:
        super().__init__(server, reason, log, tuple(last_lines))
        self.server = server
        self.reason = reason
        self.log = log
        self.last_lines = tuple(last_lines)

    def __str__(self) -> str:
        lines = "\n".join(f"    {line}" for line in self.last_lines) or "    (it wrote nothing)"
        return f"{self.server} did not start: {self.reason}. The end of its log, {self.log}:\n{lines}"


class ServerKeepsDying(EmbeddedError):
    """The server died again and again while it was in use; `failure` is why it could not be started again."""

    code = "embedded_gave_up"

    def __init__(self, *, server: str, restarts: int, log: Path, failure: EmbeddedError | None) -> None:
        super().__init__(server, restarts, log, failure)
        self.server = server
        self.restarts = restarts
        self.log = log
        self.failure = failure

    def __str__(self) -> str:
        what = f"{self.server} died, and {self.restarts} restarts did not last; its log is {self.log}."
        if self.failure is not None:
            return f"{what} The last restart failed: {self.failure}"
        return f"{what} Look for the reason at its end, then start again, {_OWN_SERVERS}."


class StateInUse(EmbeddedError):
    """Another process uses the folder, and cannot be shared or waited for."""

    code = "embedded_state_in_use"

    def __init__(self, *, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.folder} is in use: {self.reason}. "
            f"Stop that process, choose another state folder, {_OWN_SERVERS}."
        )


class StateUnusable(EmbeddedError):
    """The state folder cannot hold the servers' files."""

    code = "embedded_state_unusable"

    def __init__(self, *, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.folder} cannot be used as state folder: {self.reason}. "
            f"Choose another one, {_OWN_SERVERS}."
        )
