"""The process that renews a worker's claims. It imports only what that needs, and ends when its parent does.

Started as `python -m threadhold.adapters.keeping`; what it has to know comes over its standard input.
"""

import sys

if __name__ == "__main__":
    # A third of its start, for tracebacks in colour that it never shows: structlog does without.
    sys.modules["rich"] = None  # type: ignore[assignment]

import asyncio
import os
import signal
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

import structlog

from threadhold.adapters.logs import configure_logs
from threadhold.claims.board import Board
from threadhold.claims.child import READ_BYTES, ChildProcess
from threadhold.claims.claim import ClaimTimes
from threadhold.claims.lines import Lines, encoded
from threadhold.claims.ports import Line
from threadhold.claims.renewals import Renewals
from threadhold.claims.watched import ParentProcess
from threadhold.storage.claims import PostgresRenewer

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 0.25
# Who only blocks the loop is named by then, from within; who keeps the interpreter itself is named at its end.
SILENT_AFTER_S: Final = 5.0


class Host:
    """Hosts the renewals of the process that started this one.

    Args:
        config: what that one has said.
        out: where it listens.
    """

    def __init__(self, config: dict[str, Any], *, out: int) -> None:
        self._out = out
        self._board = Board(config["board"])
        self._parent = ParentProcess(config["parent"], self._board)
        self._said = 0.0
        times = ClaimTimes(**config["times"])
        renewer = PostgresRenewer(
            config["url"],
            schema=config["schema"],
            worker=config["worker"],
            ttl=timedelta(seconds=times.ttl),
        )
        self.renewals = Renewals(
            renewer, times=times, board=self._board, watched=self._parent, tell=self._tell
        )

    async def watch(self) -> None:
        """Return when the parent has died, and say meanwhile when it is silent."""
        while self._parent.alive():
            if not self._parent.frozen() and self._parent.blocked_s() > SILENT_AFTER_S:
                self._say_silent()
            await asyncio.sleep(LOOK_EVERY_S)

    def _say_silent(self) -> None:
        """Say that the parent's main loop does not tick, once per block."""
        if self._parent.ticked != self._said:
            self._said = self._parent.ticked
            log.warning("loop_silent", seconds=round(self._parent.blocked_s(), 1))

    def _tell(self, line: Line) -> bool:
        """Write a line, unless the pipe is full because the parent is blocked."""
        try:
            os.write(self._out, encoded(line))
        except BlockingIOError:
            return False
        except OSError:
            # The parent has closed it: it is ending, or has ended.
            return True
        return True


def child_process(board: Board, *, url: str, schema: str, worker: str, times: ClaimTimes) -> ChildProcess:
    """Return the link to a process that renews this process's claims.

    Args:
        board: shared with it.
        url: the database, direct rather than through a transaction pooler.
        schema: where the tables live.
        worker: this worker's id.
        times: how claims are kept.
    """
    config = {
        "url": url,
        "schema": schema,
        "worker": worker,
        "times": asdict(times),
        "parent": os.getpid(),
        "board": board.fd,
    }
    command = [sys.executable, "-P", "-m", "threadhold.adapters.keeping"]
    return ChildProcess(command, first=["config", config], fds=[board.fd])


async def keep(config: dict[str, Any], early: list[Line], lines: Lines, *, out: int) -> None:
    """Renew until the parent closes our input or dies."""
    host = Host(config, out=out)
    for line in early:
        host.renewals.take(line)
    ended = asyncio.Event()

    def read() -> None:
        try:
            data = os.read(sys.stdin.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        for line in lines.split(data):
            host.renewals.take(line)
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            ended.set()

    os.set_blocking(sys.stdin.fileno(), False)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), read)
    tasks = [
        asyncio.create_task(act, name=f"keeping-{number}")
        for number, act in enumerate((host.renewals.run(), host.watch(), ended.wait()))
    ]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in done:
        # A fault of ours ends this process with a traceback, and the parent starts another.
        task.result()


def main() -> None:
    """Take the first line and renew; signals are for the parent, which closes our input when it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_logs()
    # Whatever prints must not get between the lines.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.set_blocking(out, False)
    lines, read = Lines(), list[Line]()
    while not read:
        data = os.read(sys.stdin.fileno(), READ_BYTES)
        if not data:
            return
        read = lines.split(data)
    (_, config), *early = read
    asyncio.run(keep(config, early, lines, out=out))


if __name__ == "__main__":
    main()
