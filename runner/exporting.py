"""The part of the Runner that hands out the record as a whole."""

from collections.abc import AsyncGenerator

from threadhold.runner.exports import BEGIN, ExportedFact, Place, parse_place
from threadhold.runner.granting import Granting
from threadhold.runner.ids import canonical
from threadhold.runner.records import Principal


class Exporting(Granting):
    """Exports facts; each page is checked like any other call."""

    async def export(
        self, *, by: Principal, thread: str | None = None, run: str | None = None, after: str | None = None
    ) -> AsyncGenerator[ExportedFact, None]:
        """Yield facts in the order of (thread, seq), up to the last one of now.

        What is added meanwhile to a thread that is not done yet comes along. It ends only when all was yielded.

        Args:
            by: who asks.
            thread: only those of this thread.
            run: only those of this run.
            after: the place to go on behind, as `ExportedFact.place.cursor()`; None for the beginning.

        Raises:
            InvalidInput, NotFound, OperatorsOnly (without a thread and a run), Unavailable, Closed.
        """
        if thread is None and run is None:
            self._check_operator(by, "export the whole workspace")
        thread = None if thread is None else canonical(thread, "thread")
        run = None if run is None else canonical(run, "run")
        place: Place | None = BEGIN if after is None else parse_place(after)
        while place is not None:
            self._check_open()
            page = await self._log.export(thread=thread, run=run, by=by, after=place)
            for fact in page.items:
                yield fact
            place = page.next
