"""What happens to runs, messages and requests, told to whoever counts it. Knows nothing of how it is counted."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol

from threadhold.runner.records import NewFact


class Tally(Protocol):
    """Hears of each thing once, in the process that committed it. No call waits or raises."""

    def run_started(self, agent: str, *, waited_s: float) -> None:
        """Count the first attempt of a run, which a worker took so many seconds after the run was made."""
        ...

    def run_ended(self, agent: str, *, status: str, reason: str | None, lasted_s: float | None) -> None:
        """Count the one end of a run.

        Args:
            agent: whose run.
            status: how it ended.
            reason: why, where it did not complete.
            lasted_s: seconds since it was made, with all that it waited for; None where that is not known.
        """
        ...

    def attempt_abandoned(self, cause: str) -> None:
        """Count an attempt whose claim was lost or given up."""
        ...

    def swept(self, *, lapsed: int) -> None:
        """Count a look for lapsed claims, and the claims that it took."""
        ...

    def message_accepted(self, disposition: str) -> None:
        """Count a message, not its repetitions."""
        ...

    def stop_asked(self, outcome: str) -> None:
        """Count a stop that was not refused, with what it found."""
        ...

    def request_answered(self, decision: str) -> None:
        """Count an answer, not its repetitions; `expired` where nobody gave one in time."""
        ...

    def model_called(
        self, agent: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None
    ) -> None:
        """Count what a model has answered, and what that took.

        Args:
            agent: whose run it was in.
            input_tokens, output_tokens: as its provider has counted them.
            cost: in US dollars; None where nobody knows.
        """
        ...


class _Untold:
    """Counts nothing."""

    def run_started(self, agent: str, *, waited_s: float) -> None:
        pass

    def run_ended(self, agent: str, *, status: str, reason: str | None, lasted_s: float | None) -> None:
        pass

    def attempt_abandoned(self, cause: str) -> None:
        pass

    def swept(self, *, lapsed: int) -> None:
        pass

    def message_accepted(self, disposition: str) -> None:
        pass

    def stop_asked(self, outcome: str) -> None:
        pass

    def request_answered(self, decision: str) -> None:
        pass

    def model_called(
        self, agent: str, *, input_tokens: int, output_tokens: int, cost: Decimal | None
    ) -> None:
        pass


UNTOLD: Final[Tally] = _Untold()
"""For processes in which nobody counts."""


def tell_model_calls(tally: Tally, agent: str, facts: Iterable[NewFact]) -> None:
    """Tell of each answer of a model among facts that were recorded; those of agents that were delegated to count too.

    Args:
        tally: whom to tell.
        agent: whose run the facts are of; an agent that it has asked may go by any name.
        facts: of the run.
    """
    for fact in facts:
        did = fact.data.get("did") if fact.kind == "delegated" else fact.kind
        if did == "model_called":
            tally.model_called(
                agent,
                input_tokens=fact.data.get("input_tokens") or 0,
                output_tokens=fact.data.get("output_tokens") or 0,
                cost=_money(fact.data.get("cost")),
            )


def _money(text: Any) -> Decimal | None:
    """Return an amount on record; what was taken for a secret there is not known."""
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None
