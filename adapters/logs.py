"""Structured logs on stderr: for people on a terminal, one JSON object per line everywhere else."""

import logging
import sys
from typing import Any, Final

import structlog

QUIET: Final = ("arq", "asyncio", "httpcore", "httpx", "httpx2", "openai", "uvicorn", "websockets")


def configure_logs(*, level: int = logging.INFO) -> None:
    """Set up logging for a process of ours. Libraries speak from WARNING on, through the same format.

    Tracebacks are plain: the fancy ones print local variables, which are slow to render and may hold secrets.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    terminal = sys.stderr.isatty()
    rendered: list[Any] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # The pool says with a traceback that it lost a connection; we say it in a line of our own.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)
