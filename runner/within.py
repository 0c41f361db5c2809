"""The call of a tool that code runs within, for what that code asks in turn."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from threadhold.runner.admission import Admission
from threadhold.runner.bindings import Binding
from threadhold.runner.journal import Journal
from threadhold.runner.spending import Spending


class Interrupted(Exception):
    """The way out of an agent whose run was asked to stop, or is handed over to another worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a tool of a run, as far as what is asked within it has to know.

    Args:
        run: the run's id.
        call_id: its id on record.
        depth: how many agents have delegated down to here.
        delegates: numbers the agents that are asked within it.
        journal: of the run's attempt.
        admission, spending: of the run; None if it has no policy, or no budget.
        tools: how tools are carried out, by their names; in the worker, whoever's they are.
        go_on: records before something happens; raises if nothing may happen any more.
        doing: shows the call of a tool as under way in this process.
        clock: seconds.
    """

    run: str
    call_id: str
    depth: int
    delegates: Iterator[int]
    journal: Journal
    admission: Admission | None
    spending: Spending | None
    tools: Mapping[str, Binding]
    go_on: Callable[..., Awaitable[None]]
    doing: Callable[[str], AbstractContextManager[None]]
    clock: Callable[[], float]


APART: Final[ContextVar[bool]] = ContextVar("apart", default=False)
"""Whether this code is a part of a run that another process executes, and whose budget it cannot reach."""
CURRENT: Final[ContextVar[Call | None]] = ContextVar("within", default=None)


@contextmanager
def within(call: Call) -> Iterator[None]:
    """Let the body ask other agents as a part of a call."""
    before = CURRENT.set(call)
    try:
        yield
    finally:
        CURRENT.reset(before)
