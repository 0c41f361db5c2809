"""Measure, each number beside its floor.

Usage: python -m benchmarks [--only NAME] [--json] [--logs FOLDER]
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

from benchmarks import frame, load, start, stop
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
}
WITHIN_S: Final = 110.0


def main() -> int:
    """Measure what the arguments say and return the exit code."""
    args = _arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    signal.signal(signal.SIGTERM, _told_to_end)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as state:
            logs = args.logs or Path(state)
            logs.mkdir(parents=True, exist_ok=True)
            with Meter() as meter:
                rows = _measured(args.only or list(MEASUREMENTS), Path(state), logs, meter)
    except KeyboardInterrupt:
        return 130
    except TimeoutError:
        print(f"bench: gave up after {WITHIN_S:g} s; measure one at a time with --only", file=sys.stderr)
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
    parser.add_argument("--json", action="store_true", help="one object per row")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep there what the processes say")
    return parser.parse_args()


def _measured(names: list[str], state: Path, logs: Path, meter: Meter) -> list[Row]:
    meter.begin("servers")
    with start_servers(state, database_url=None, redis_url=None) as servers:
        settings = Settings(database_url=servers.database_url, redis_url=servers.redis_url)
        return asyncio.run(_rows(names, settings, logs, meter))


async def _rows(names: list[str], settings: Settings, logs: Path, meter: Meter) -> list[Row]:
    rows: list[Row] = []
    async with asyncio.timeout(WITHIN_S), open_bench(settings, logs, meter) as bench:
        for name in names:
            rows += await MEASUREMENTS[name](bench)
    return rows


def _told_to_end(number: int, _: object) -> NoReturn:
    """Leave by way of every `finally`, so that no server or process stays behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
