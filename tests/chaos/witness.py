"""The outside witness: a process of its own, to which models and tools say when they begin and when they end.

Every report is one JSON line over a Unix socket, answered by one byte once it has been stamped and written, so that a
report is part of the call itself: a frozen process says nothing, and whatever was caused by a call comes after it. The
end of a connection is written too: a killed process ends its calls so.
"""

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.chaos.evidence import Event

PATH: Final = "CHAOS_WITNESS"
ACK: Final = b"."


class Reporter:
    """What a process under test says to the witness; blocking, since a report must be in before the call goes on."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self.tell("here")

    def tell(self, what: str, **fields: Any) -> None:
        """Report, and return when it has been written."""
        line = json.dumps({"what": what, "pid": os.getpid(), **fields}).encode() + b"\n"
        with self._lock:
            self._socket.sendall(line)
            if self._socket.recv(1) != ACK:
                raise ConnectionError("the witness is gone")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


class Witness:
    """The witness process, as the harness sees it.

    Args:
        folder: where its socket and its log are.
    """

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "witness.sock")
        self._log = folder / "witness.jsonl"
        command = [sys.executable, "-m", __name__, self.path, str(self._log)]
        root = str(Path(__file__).parents[2])
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE)
        while not Path(self.path).exists():
            if self._process.poll() is not None:
                raise RuntimeError("the witness did not start")
            time.sleep(0.01)

    def close(self) -> None:
        """End the process; what it has written stays."""
        self._process.communicate()

    def events(self) -> list[Event]:
        """Return all that was reported, in the order in which it was stamped."""
        with self._log.open() as lines:
            return [Event.parse(json.loads(line)) for line in lines]


class _Stand:
    """The witness's own process: reads all connections, stamps and writes."""

    def __init__(self, path: str, log: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path + ".new")
        self._listening.listen(64)
        os.rename(path + ".new", path)
        self._log = log.open("a", buffering=1)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._pids: dict[socket.socket, int] = {}
        self._rest: dict[socket.socket, bytes] = {}

    def serve(self) -> None:
        """Serve until stdin ends, which the harness holds open."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is self._listening:
                    connection, _ = self._listening.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65_536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            connection.close()
            self._write({"what": "gone", "pid": self._pids.pop(connection, 0)})
            return
        *lines, self._rest[connection] = (self._rest.get(connection, b"") + data).split(b"\n")
        for line in lines:
            report = json.loads(line)
            self._pids[connection] = report["pid"]
            self._write(report)
            connection.send(ACK)

    def _write(self, report: dict[str, Any]) -> None:
        self._log.write(json.dumps({"at": time.monotonic(), **report}) + "\n")


if __name__ == "__main__":
    _Stand(sys.argv[1], Path(sys.argv[2])).serve()
