"""Spans of what is asked of a Runner and what a worker does, for whoever has set up an OpenTelemetry SDK.

They hold ids, names and outcomes: never what a message says, nor what an error says. Without an SDK they cost a few
microseconds and go nowhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

PREFIX: Final = "threadhold."
tracer: Final = trace.get_tracer("threadhold")

Told = str | int | float | None
Tell = Callable[..., None]


@contextmanager
def span(name: str, **facts: Told) -> Iterator[Tell]:
    """Open a span for the body of the `with`; what it yields adds attributes. Attributes that are None are left out.

    An exception that leaves the body is named by its stable code, or by its type where it has none.
    """
    with tracer.start_as_current_span(
        PREFIX + name, record_exception=False, set_status_on_exception=False
    ) as opened:

        def tell(**more: Told) -> None:
            for key, value in more.items():
                if value is not None:
                    opened.set_attribute(PREFIX + key, value)

        tell(**facts)
        try:
            yield tell
        except BaseException as error:
            code = getattr(error, "code", None)
            opened.set_attribute("error.type", code if isinstance(code, str) else type(error).__name__)
            opened.set_status(Status(StatusCode.ERROR))
            raise
