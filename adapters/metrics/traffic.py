"""Counts HTTP requests, by the route that they came to."""

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadhold.adapters.metrics.counting import PREFIX

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
NOWHERE: Final = "none"
"""The route of what is refused before it has come to one, or has come to none."""
OTHER: Final = "other"


class Traffic:
    """The numbers of one app. How long a request takes is told by when its answer begins: a stream may last for ever.

    Args:
        registry: where the numbers are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("route", "method")
        self._requests = Counter(
            f"{PREFIX}http_requests", "Requests that were answered", (*labels, "status"), registry=registry
        )
        self._seconds = Histogram(
            f"{PREFIX}http_request_seconds",
            "From a request to the beginning of its answer",
            labels,
            registry=registry,
            buckets=BUCKETS,
        )
        # To find a child by its labels takes longer than to count.
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        if (counter := self._counters.get((route, method, status))) is None:
            counter = self._requests.labels(route, method, str(status))
            self._counters[route, method, status] = counter
        if (histogram := self._histograms.get((route, method))) is None:
            histogram = self._histograms[route, method] = self._seconds.labels(route, method)
        counter.inc()
        histogram.observe(seconds)


class Counted:
    """Wraps an app, and the gate before it.

    Args:
        app: what answers.
        traffic: counts it.
    """

    def __init__(self, app: ASGIApp, *, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in METHODS else OTHER
                seconds = time.perf_counter() - began
                self._traffic.note(route_of(scope), method, message["status"], seconds)
            await send(message)

        await self._app(scope, receive, sending)


def route_of(scope: Scope) -> str:
    """Return the template of the route that a request came to, never a path that somebody made up."""
    path: str | None = getattr(scope.get("route"), "path", None)
    if path is None and "endpoint" in scope and not scope.get("path_params"):
        # A plain route tells only what it calls; without parameters its template is the path.
        path = scope["path"]
    return path or NOWHERE
