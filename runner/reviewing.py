"""The part of the Runner that shows what is on record: facts, history, attempts, answers and calls, page by page."""

from typing import Any, Final

from threadhold.runner.errors import Closed
from threadhold.runner.ids import canonical
from threadhold.runner.ports import LogStore
from threadhold.runner.records import AttemptRecord, Fact, Page, Principal
from threadhold.runner.steps import Call, Step, calls_of, step_of

PAGE_MAX: Final = 100


class Reviewing:
    """Shows what is on record; each call is checked like any other."""

    _log: LogStore
    _closed = False

    async def facts(self, thread: str, *, by: Principal, after: int = 0, limit: int = 20) -> Page[Fact]:
        """Return a thread's facts in order, at most `limit` (1 to 100) and about 1 MiB, with a `seq` above `after`.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._log.facts(canonical(thread, "thread"), by=by, after=after, limit=bounded(limit))

    async def history(self, thread: str, *, by: Principal, after: int = 0, limit: int = 20) -> Page[Any]:
        """Return what the thread's model was shown and has said: pydantic-ai's messages, as JSON values.

        They are kept in chunks, each with what came together; a page has whole ones.

        Args:
            thread: the thread.
            by: who asks.
            after: the chunk behind which to begin.
            limit: how many chunks, 1 to 100; fewer if they have more than about 1 MiB.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._log.history(canonical(thread, "thread"), by=by, after=after, limit=bounded(limit))

    async def attempts(
        self, run: str, *, by: Principal, after: int = 0, limit: int = 20
    ) -> Page[AttemptRecord]:
        """Return a run's attempts, oldest first, at most `limit` (1 to 100), above the number `after`.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._log.attempts(run, by=by, after=after, limit=bounded(limit))

    async def steps(self, run: str, *, by: Principal, after: int = 0, limit: int = 20) -> Page[Step]:
        """Return the answers that models gave in a run, at most `limit` (1 to 100), with a `seq` above `after`.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        page = await self._log.answers(run, by=by, after=after, limit=bounded(limit))
        return Page(items=[step_of(fact) for fact in page.items], next=page.next)

    async def calls(self, run: str, *, by: Principal, after: int = 0, limit: int = 20) -> Page[Call]:
        """Return the tool calls of a run and what became of each, in the order in which they were asked for.

        Args:
            run: the run.
            by: who asks.
            after: the `seq` of the answer behind which to begin.
            limit: of how many answers, 1 to 100, those without calls not counted.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        page = await self._log.answers(run, by=by, after=after, limit=bounded(limit), calling=True)
        answers = [fact.seq for fact in page.items]
        facts = await self._log.calls(run, by=by, answers=answers) if answers else []
        return Page(items=calls_of(facts, answers=answers), next=page.next)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed


def bounded(limit: int) -> int:
    """Return how many items a page has that is asked for so many."""
    return max(1, min(limit, PAGE_MAX))
