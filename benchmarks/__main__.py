"""Measure, each number beside its floor.

Usage: python -m benchmarks [--only NAME] [--minutes N] [--json] [--logs FOLDER]
"""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NoReturn

import structlog

from benchmarks import calls, detection, fanout, frame, governance, load, stalled, start, stop, streams
from benchmarks.errors import BenchError
from benchmarks.progress import Meter
from benchmarks.report import print_json, print_table
from benchmarks.rows import Row
from benchmarks.stack import Bench, open_bench
from threadhold.adapters.embedded import EmbeddedError, start_servers
from threadhold.adapters.settings import Settings
from threadhold.runner.errors import RunnerError

MEASUREMENTS: Final[dict[str, Callable[[Bench], Awaitable[list[Row]]]]] = {
    "start": start.measure,
    "frame": frame.measure,
    "stop": stop.measure,
    "load": load.measure,
    "detection": detection.measure,
    "fanout": fanout.measure,
    "streams": streams.measure,
    "crowd": stalled.measure,
    "doors": calls.measure,
    "governance": governance.measure,
}
WITHIN_S: Final = 110.0
# Those that take longer than all others together are only measured when they are named; within so many seconds.
ALONE: Final = {
    "detection": 110.0,
    "fanout": 300.0,
    "streams": 110.0,
    "crowd": 110.0,
    "doors": 300.0,
    "governance": 110.0,
}
# How long the crowd stays, where nobody says it; this comes on top.
MINUTES: Final = 5.0
LENGTHY: Final = frozenset({"crowd"})


def main() -> int:
    """Measure what the arguments say and return the exit code."""
    args = _arguments()
    names = args.only or [name for name in MEASUREMENTS if name not in ALONE]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    signal.signal(signal.SIGTERM, _told_to_end)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as state:
            logs = args.logs or Path(state)
            logs.mkdir(parents=True, exist_ok=True)
            with Meter() as meter:
                rows = _measured(names, Path(state), logs, meter, minutes=args.minutes)
    except KeyboardInterrupt:
        return 130
    except TimeoutError:
        print(
            f"bench: gave up after {_within(names, args.minutes):g} s; measure one at a time with --only",
            file=sys.stderr,
        )
        return 1
    except (BenchError, EmbeddedError, RunnerError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    (print_json if args.json else print_table)(rows)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure, each number beside its floor."
    )
    parser.add_argument(
        "--only", action="append", choices=list(MEASUREMENTS), help="may be given several times"
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, metavar="N", help="how long the crowd stays (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="one object per row")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep there what the processes say")
    return parser.parse_args()


def _measured(names: list[str], state: Path, logs: Path, meter: Meter, *, minutes: float) -> list[Row]:
    meter.begin("servers")
    with start_servers(state, database_url=None, redis_url=None) as servers:
        settings = Settings(database_url=servers.database_url, redis_url=servers.redis_url)
        return asyncio.run(_rows(names, settings, logs, meter, minutes=minutes))


async def _rows(
    names: list[str], settings: Settings, logs: Path, meter: Meter, *, minutes: float
) -> list[Row]:
    rows: list[Row] = []
    async with (
        asyncio.timeout(_within(names, minutes)),
        open_bench(settings, logs, meter, minutes=minutes) as bench,
    ):
        for name in names:
            rows += await MEASUREMENTS[name](bench)
    return rows


def _within(names: list[str], minutes: float) -> float:
    longest = max([WITHIN_S, *(ALONE[name] for name in names if name in ALONE)])
    return longest + (minutes * 60 if LENGTHY & set(names) else 0.0)


def _told_to_end(number: int, _: object) -> NoReturn:
    """Leave by way of every `finally`, so that no server or process stays behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
