"""What is on record of threads and runs, page by page, for the people who may see it."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from threadhold.runner.checkpoints import Checkpoint, checkpoint_id
from threadhold.runner.errors import NotFound
from threadhold.runner.exports import ExportedFact, ExportPage, Place
from threadhold.runner.records import PAGE_BYTES_MAX, AttemptRecord, Fact, Page, Principal
from threadhold.runner.steps import CALL_FACTS
from threadhold.storage.ids import as_uuid
from threadhold.storage.pool import Database
from threadhold.storage.runs import attempt_of

T = TypeVar("T")

EXPORT_ROWS: Final = 200


def _fields(row: Any) -> dict[str, Any]:
    return {
        "seq": row["seq"],
        "run": str(row["run_id"]) if row["run_id"] else None,
        "fence": row["fence"],
        "kind": row["kind"],
        "data": json.loads(row["data"]),
        "at": row["at"],
        "admission": json.loads(row["admission"] or "null"),
    }


def _fact(row: Any) -> Fact:
    return Fact(**_fields(row))


def _checkpoint(row: Any) -> Checkpoint:
    return Checkpoint(
        id=checkpoint_id(row["run_id"], row["chunk"]),
        run=str(row["run_id"]),
        thread=str(row["thread_id"]),
        attempt=row["attempt"],
        parent=checkpoint_id(row["parent_run"], row["parent"]) if row["parent_run"] else None,
        messages=row["messages"],
        ends_in=row["ends_in"],
        requests=tuple(str(id) for id in row["requests"]),
        seq=row["seq"],
        fence=row["fence"],
        at=row["at"],
    )


class PostgresLog:
    """The `LogStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def facts(self, thread: str, *, by: Principal, after: int, limit: int) -> Page[Fact]:
        """Return facts of a thread, from a `seq` on."""
        rows = await self._rows("facts_page", "thread", thread, by, after, limit, PAGE_BYTES_MAX)
        return _page(rows, _fact)

    async def history(
        self, thread: str, *, by: Principal, after: int, limit: int, head: int | None = None
    ) -> Page[Any]:
        """Return a thread's messages as JSON values, from a chunk on, as they stood at `head` or stand now."""
        rows = await self._rows("history_page", "thread", thread, by, after, limit, PAGE_BYTES_MAX, head)
        page = _page(rows, lambda row: json.loads(row["messages"]))
        return Page(items=[message for chunk in page.items for message in chunk], next=page.next)

    async def attempts(self, run: str, *, by: Principal, after: int, limit: int) -> Page[AttemptRecord]:
        """Return attempts of a run, from one on."""
        return _page(await self._rows("attempts_page", "run", run, by, after, limit), attempt_of)

    async def answers(
        self, run: str, *, by: Principal, after: int, limit: int, calling: bool = False
    ) -> Page[Fact]:
        """Return the `model_called` facts of a run, from a `seq` on."""
        rows = await self._rows("answers_page", "run", run, by, after, limit, PAGE_BYTES_MAX, calling)
        return _page(rows, _fact)

    async def calls(self, run: str, *, by: Principal, answers: list[int]) -> list[Fact]:
        """Return the facts about the calls of these answers, in the log's order."""
        id = as_uuid(run, "run")
        rows = await self._database.rows(
            "calls_of", id, by.workspace, by.id, list(by.roles), answers, list(CALL_FACTS)
        )
        return [_fact(row) for row in rows]

    async def checkpoints(self, run: str, *, by: Principal, after: int, limit: int) -> Page[Checkpoint]:
        """Return the positions that a run has reached, from a chunk on."""
        return _page(await self._rows("checkpoints_page", "run", run, by, after, limit), _checkpoint)

    async def checkpoint(self, run: str, chunk: int, *, by: Principal) -> Checkpoint:
        """Return one position."""
        id, roles = as_uuid(run, "run"), list(by.roles)
        row = await self._database.row("get_checkpoint", id, by.workspace, by.id, roles, chunk)
        if row is None:
            raise NotFound("checkpoint", checkpoint_id(run, chunk))
        return _checkpoint(row)

    async def export(self, *, thread: str | None, run: str | None, by: Principal, after: Place) -> ExportPage:
        """Return facts behind a place: of a thread, of a run, or of all threads of an operator's workspace."""
        roles, place = list(by.roles), (as_uuid(after.thread, "thread"), after.seq)
        bounds = (EXPORT_ROWS, PAGE_BYTES_MAX)
        if thread is None and run is None:
            return _export(
                await self._database.rows("export_workspace", by.workspace, roles, *place, *bounds)
            )
        what, id = ("run", run) if run is not None else ("thread", str(thread))
        on = [None if thread is None else as_uuid(thread, "thread")] if what == "run" else []
        rows = await self._database.rows(
            f"export_{what}", as_uuid(id, what), by.workspace, by.id, roles, *place, *bounds, *on
        )
        if not rows:
            raise NotFound(what, id)
        return _export(rows)

    async def _rows(self, statement: str, what: str, id: str, by: Principal, *args: Any) -> list[Any]:
        """Return the rows of a page; a thing without any has one in which nothing is set.

        Raises:
            NotFound: not even that.
        """
        rows = await self._database.rows(
            statement, as_uuid(id, what), by.workspace, by.id, list(by.roles), *args
        )
        if not rows:
            raise NotFound(what, id)
        return [row for row in rows if row["place"] is not None]


def _page(rows: list[Any], item: Callable[[Any], T]) -> Page[T]:
    more = bool(rows) and rows[-1]["more"]
    return Page(items=[item(row) for row in rows], next=rows[-1]["place"] if more else None)


def _export(rows: list[Any]) -> ExportPage:
    facts = [
        ExportedFact(thread=str(row["thread_id"]), **_fields(row)) for row in rows if row["seq"] is not None
    ]
    last = rows[-1] if rows and rows[-1]["more"] else None
    return ExportPage(
        items=facts,
        next=None if last is None else Place(thread=str(last["thread_id"]), seq=last["seq"] or 0),
    )
