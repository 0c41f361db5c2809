"""An embedded Valkey (or Redis, where only that is installed), on loopback only."""

import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from threadhold.adapters.embedded.binaries import find_valkey
from threadhold.adapters.embedded.loopback import HOST
from threadhold.adapters.embedded.process import Child
from threadhold.adapters.embedded.server import EmbeddedServer, Progress, quiet

_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "appendonly": "yes",
        "bind": HOST,
        "daemonize": "no",
        "maxmemory": "512mb",
        # An eviction would silently lose a nudge; a refused write is seen.
        "maxmemory-policy": "noeviction",
        "save": "",
        # The command line stays visible as it was given: by it an orphan is recognised.
        "set-proc-title": "no",
    }
)
# Valkey 9 does not count payloads of 16 KiB and more against the limit of a subscriber that does not read:
# they pile up until the memory is gone. These sizes, never reached, switch that copy avoidance off.
_VALKEY_9: Mapping[str, str] = MappingProxyType(
    {
        "min-string-size-avoid-copy-reply": "1000000000",
        "min-string-size-avoid-copy-reply-threaded": "1000000000",
    }
)
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_ANSWER_BYTES_MAX = 65_536
_ANSWER_S_MAX = 0.3  # Then it is asked again.


class EmbeddedValkey(EmbeddedServer):
    """A Valkey server with its data in `state/valkey-<major>` (`redis-<major>`); raises BinariesMissing.

    The name and the major version are part of the folder's name: neither server reads the other's files.
    """

    _title = "Valkey"
    _stop_signals = (signal.SIGTERM,)

    def __init__(
        self,
        state: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] = _NO_SETTINGS,
        progress: Progress = quiet,
    ) -> None:
        self._binary = find_valkey()
        folder = f"{self._binary.name}-{self._binary.major}"
        super().__init__(state, folder=folder, port=port, settings=settings, progress=progress)
        self._pid_file = self.folder / "server.pid"

    @property
    def url(self) -> str:
        """The URL of the running server."""
        return f"redis://{HOST}:{self.port}/0"

    def _prepare(self) -> None:
        self._pid_file.unlink(missing_ok=True)

    def _command(self, port: int) -> list[str | Path]:
        bounds = _VALKEY_9 if (self._binary.name, self._binary.major) == ("valkey", 9) else {}
        fixed = {"dir": str(self.folder), "pidfile": str(self._pid_file), "port": str(port)}
        command: list[str | Path] = [self._binary.path]
        for name, value in {**_SETTINGS, **bounds, **self._settings, **fixed}.items():
            command += [f"--{name}", value]
        return command

    def _answers(self, child: Child, port: int) -> bool:
        """Ask for the process id: somebody else's server on that port would say PONG as well."""
        answer = _ask(port, b"PING\r\nINFO server\r\n", until=b"\r\nprocess_id:", then=b"\r\n")
        return answer.startswith(b"+PONG\r\n") and f"\r\nprocess_id:{child.pid}\r\n".encode() in answer

    def _recorded_pid(self) -> int | None:
        try:
            text = self._pid_file.read_text(errors="replace").strip()
        except OSError:
            return None
        return int(text) if text.isdecimal() else None


def _ask(port: int, question: bytes, *, until: bytes, then: bytes) -> bytes:
    """Send a question; return what comes until `until`, and `then` after it, were seen, or it ends."""
    answer = b""
    try:
        with socket.create_connection((HOST, port), _ANSWER_S_MAX) as connection:
            connection.sendall(question)
            while then not in answer.partition(until)[2] and len(answer) < _ANSWER_BYTES_MAX:
                received = connection.recv(4096)
                if not received:
                    break
                answer += received
    except OSError:
        return answer
    return answer
