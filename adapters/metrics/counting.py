"""Counts what is committed in this process."""

from decimal import Decimal
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX: Final = "threadhold_"
# From a wait that nobody notices to an agent that works for an hour.
RUN_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
WAIT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Counts:
    """The `Tally` of a process. Labels are names of agents and words of ours, so that there are few of them.

    Args:
        registry: where the numbers are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(PREFIX + name, text, labels, registry=registry, buckets=buckets)

        self._started = counter("runs_started", "Runs that a worker here took first", "agent")
        self._ended = counter("runs_ended", "Runs whose end was recorded here", "agent", "status", "reason")
        self._lasted = histogram(
            "run_duration_seconds", "From a run's making to its end", "agent", "status", buckets=RUN_BUCKETS
        )
        self._waited = histogram(
            "run_wait_seconds", "From a run's making to its first attempt", "agent", buckets=WAIT_BUCKETS
        )
        self._abandoned = counter("attempts_abandoned", "Attempts that were lost or given up", "cause")
        self._sweeps = counter("sweeps", "Looks for lapsed claims")
        self._lapsed = counter("claims_lapsed", "Lapsed claims that sweeps took")
        self._accepted = counter("messages_accepted", "Messages, without repetitions", "disposition")
        self._stops = counter("stops", "Stops that were not refused", "outcome")
        self._answers = counter("answers", "Requests that were answered, or expired", "decision")
        self._calls = counter("model_calls", "Answers of models that were recorded here", "agent")
        self._tokens = counter("tokens", "Tokens that these took", "agent", "kind")
        self._cost = counter("cost_dollars", "What these cost, as far as their prices are known", "agent")

    def run_started(self, agent: str, *, waited_s: float) -> None:
        """Count the first attempt of a run."""
        self._started.labels(agent).inc()
        self._waited.labels(agent).observe(waited_s)

    def run_ended(self, agent: str, *, status: str, reason: str | None, lasted_s: float | None) -> None:
        """Count the end of a run."""
        self._ended.labels(agent, status, reason or "").inc()
        if lasted_s is not None:
            self._lasted.labels(agent, status).observe(lasted_s)

    def attempt_abandoned(self, cause: str) -> None:
        """Count an attempt that was lost or given up."""
        self._abandoned.labels(cause).inc()

    def swept(self, *, lapsed: int) -> None:
        """Count a look for lapsed claims."""
        self._sweeps.inc()
        self._lapsed.inc(lapsed)

    def message_accepted(self, disposition: str) -> None:
        """Count a message."""
        self._accepted.labels(disposition).inc()

    def stop_asked(self, outcome: str) -> None:
        """Count a stop."""
        self._stops.labels(outcome).inc()

    def request_answered(self, decision: str) -> None:
        """Count an answer."""
        self._answers.labels(decision).inc()

    def model_called(
        self, agent: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None
    ) -> None:
        """Count an answer of a model, and what it took; a counter takes nothing that is below zero."""
        self._calls.labels(agent).inc()
        self._tokens.labels(agent, "input").inc(max(0, input_tokens))
        self._tokens.labels(agent, "output").inc(max(0, output_tokens))
        self._cost.labels(agent).inc(max(0.0, float(cost or 0)))
