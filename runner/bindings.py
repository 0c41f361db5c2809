"""How a tool of an agent is carried out: with whose credentials, where, and for how long at most. Values only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Self

from threadhold.runner.identity import RunIdentity

TIMEOUT: Final = timedelta(minutes=10)
TIMEOUT_MAX: Final = timedelta(days=1)
ANSWER_WAIT: Final = timedelta(seconds=30)
"""For how much longer a worker waits for an executor to say how a call came out."""

Resolver = Callable[[RunIdentity], str | Awaitable[str]]
"""Gives the secret of one family of credentials to one run; asked anew for each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How one tool is carried out.

    Args:
        credentials: the family of credentials that the tool gets, and no other; None for none.
        executor: the queue whose processes carry it out; None for the worker itself.
        timeout: when a call that has not ended is given up, as failed if it ran in the worker, and its process killed
            if it ran in an executor.

    Raises:
        ValueError: if the timeout is not from a moment to a day, or a name is empty.
    """

    credentials: str | None = None
    executor: str | None = None
    timeout: timedelta = TIMEOUT

    def __post_init__(self) -> None:
        if not timedelta(0) < self.timeout <= TIMEOUT_MAX:
            raise ValueError(f"timeout is more than nothing and at most {TIMEOUT_MAX}")
        if "" in (self.credentials, self.executor):
            raise ValueError("credentials and executor are names, or None")

    def in_worker(self) -> Self:
        """Return how a worker has to do with a call: for an executor's it waits, a little longer than that may take.

        Only the executor asks for the credentials.
        """
        if self.executor is None:
            return self
        return replace(self, credentials=None, timeout=min(TIMEOUT_MAX, self.timeout + ANSWER_WAIT))


DEFAULT: Final = Binding()
