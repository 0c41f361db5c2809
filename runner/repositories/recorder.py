"""Writes down which branches of a program's conditions were taken, and which were not."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import JsonValue

from threadhold.runner.repositories.models import Run, RunConditionResult


class ConditionResultRecorder:
    """Appends what conditions came to; whoever has the run saves it."""

    def record(self, run: Run, result: RunConditionResult) -> Run:
        """Append one result, touch the run and return it."""
        return self.record_many(run, (result,))

    def record_many(self, run: Run, results: Iterable[RunConditionResult]) -> Run:
        """Append results in their order, touch the run once and return it."""
        run.condition_results.extend(results)
        run.touch()
        return run


def branches(
    condition_id: str,
    edges: Sequence[str],
    *,
    taken: str | None,
    evaluated_at: datetime,
    details: dict[str, JsonValue] | None = None,
) -> list[RunConditionResult]:
    """Return a result for each edge of a condition: the one that was taken, and those that were suppressed.

    Args:
        taken: the edge that matched; None if none did.
    """
    return [
        RunConditionResult(
            condition_id=condition_id,
            matched=edge == taken,
            selected_edge_id=edge,
            evaluated_at=evaluated_at,
            details=details or {},
        )
        for edge in edges
    ]
