"""A process that owns or shares the embedded servers, for tests that kill it.

It prints one line of JSON when the servers are up (or why they are not), and stops them when its input ends.
"""

import argparse
import encodings.idna  # noqa: F401  (a process that has become `nobody` may not reach the standard library any more)
import json
import os
import pwd
import signal
import sys
import threading
from pathlib import Path

from threadhold.adapters.embedded import EmbeddedError, Servers, process, start_servers


def _become_nobody() -> None:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def _start_in_thread(state: Path) -> Servers:
    """Start from a thread that is gone when this returns."""
    found: list[Servers] = []
    thread = threading.Thread(target=lambda: found.append(_start(state)))
    thread.start()
    thread.join()
    return found[0]


def _start(state: Path) -> Servers:
    return start_servers(state, database_url=None, redis_url=None)


def _fork_a_copy(servers: Servers) -> None:
    """Leave a forked copy of this process behind, which tries to stop the servers and lives on."""
    if os.fork() == 0:
        servers.stop()
        sys.stdin.read()
        os._exit(0)


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("state", type=Path)
    for flag in ("--as-nobody", "--fork", "--ignore-sigint", "--in-thread", "--without-setpriv"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.as_nobody:
        _become_nobody()
    if options.ignore_sigint:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.without_setpriv:
        process.setpriv = lambda: None  # type: ignore[assignment]
    try:
        servers = _start_in_thread(options.state) if options.in_thread else _start(options.state)
    except EmbeddedError as error:
        _say(code=error.code, text=str(error))
        return
    if options.fork:
        _fork_a_copy(servers)
    _say(database_url=servers.database_url, redis_url=servers.redis_url, owned=servers.owned, pid=os.getpid())
    sys.stdin.read()
    servers.stop()


if __name__ == "__main__":
    main()
