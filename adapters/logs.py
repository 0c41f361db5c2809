"""Structured logs on stderr: for people on a terminal, one JSON object per line everywhere else."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from threadhold.runner.credentials import PROCESS

CUT_BY_US: Final = "unexpected connection_lost() call"
# One list for good: loggers that are in use already keep the one that they have.
_processors: Final[list[Any]] = []
QUIET: Final = (
    "arq", "asyncio", "httpcore", "httpx", "httpx2", "mcp", "openai", "sse_starlette", "uvicorn", "websockets"
)  # fmt: skip


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever is the standard error then."""

    @property
    def stream(self) -> Any:
        """The standard error of this moment; somebody may have replaced it."""
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        pass


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
        else [structlog.processors.JSONRenderer(default=str)]
    )
    _processors[:] = [*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter]
    structlog.configure(
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                scrubbed,
                *rendered,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_is_news)
    # The pool says with a traceback that it lost a connection; we say it in a line of our own.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)


def scrubbed(logger: Any, method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Take secrets out of what is logged, whatever it is; a processor for structlog."""
    return {key: PROCESS.under(key, _loggable(value)) for key, value in event.items()}


def _loggable(value: Any) -> Any:
    """Return a value as it is written, if it is not JSON-like anyway."""
    match value:
        case dict():
            return {str(key): _loggable(item) for key, item in value.items()}
        case list() | tuple():
            return [_loggable(item) for item in value]
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether a record is worth a line.

    The driver leaves an error that nobody reads behind each connection that we have cut: who waited for it has gone.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, ConnectionError) and CUT_BY_US in str(error))
