"""The calls that show what is on record of threads and runs, and that let people in and out."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from threadhold.adapters.calls import Calls, query_of
from threadhold.adapters.replies import ClientError, decoded, items_of, segment
from threadhold.runner.records import Access, AttemptRecord, Fact, Member, Page
from threadhold.runner.steps import Call, Step

PAGE: Final = 100

T = TypeVar("T")


class Reviews(Calls):
    """Reads the record page by page, forward, each page behind `after` and with at most `limit` (1 to 100) items."""

    async def facts(self, thread: str, *, after: int = 0, limit: int = PAGE) -> Page[Fact]:
        """Return facts of a thread with a `seq` above `after`. Raises ClientError."""
        return await self._page(Fact, f"/v1/threads/{segment(thread)}/facts", after, limit)

    async def history(self, thread: str, *, after: int = 0, limit: int = PAGE) -> Page[Any]:
        """Return messages of a thread as pydantic-ai writes them; `limit` counts what was kept together.

        Raises:
            ClientError.
        """
        return await self._page(object, f"/v1/threads/{segment(thread)}/history", after, limit)

    async def attempts(self, run: str, *, after: int = 0, limit: int = PAGE) -> Page[AttemptRecord]:
        """Return attempts of a run with a number above `after`. Raises ClientError."""
        return await self._page(AttemptRecord, f"/v1/runs/{segment(run)}/attempts", after, limit)

    async def steps(self, run: str, *, after: int = 0, limit: int = PAGE) -> Page[Step]:
        """Return what models answered in a run, with a `seq` above `after`. Raises ClientError."""
        return await self._page(Step, f"/v1/runs/{segment(run)}/steps", after, limit)

    async def calls(self, run: str, *, after: int = 0, limit: int = PAGE) -> Page[Call]:
        """Return tool calls of a run that answers above the `seq` `after` ask for; `limit` counts the answers.

        Raises:
            ClientError.
        """
        return await self._page(Call, f"/v1/runs/{segment(run)}/calls", after, limit)

    async def members(self, thread: str) -> list[Member]:
        """Return who may see a thread beside its owner. Raises ClientError."""
        return await self._items(Member, f"/v1/threads/{segment(thread)}/members")

    async def set_member(self, thread: str, member: str, access: Access) -> Member:
        """Let somebody see a thread, or change what they may do there. Raises ClientError."""
        path = f"/v1/threads/{segment(thread)}/members/{segment(member)}"
        return decoded(Member, await self._call("PUT", path, body={"access": access}, repeatable=True))

    async def remove_member(self, thread: str, member: str) -> None:
        """Let somebody out, whether they were in or not. Raises ClientError."""
        path = f"/v1/threads/{segment(thread)}/members/{segment(member)}"
        await self._call("DELETE", path, repeatable=True)

    async def _page(self, type_: type[T], path: str, after: int, limit: int) -> Page[T]:
        answer = await self._call("GET", path, query=query_of(cursor=after, limit=limit))
        items, behind = items_of(type_, answer), answer.get("next_cursor")
        if behind is not None and not str(behind).isdecimal():
            raise ClientError(
                "bad_answer", "the server's page does not end in a number; is it of another version?"
            )
        return Page(items=items, next=None if behind is None else int(behind))


async def all_of(
    page: Callable[[int, int], Awaitable[Page[T]]], *, after: int = 0, most: int | None = None
) -> AsyncGenerator[T, None]:
    """Yield what is on record, page by page, to the last of now.

    Args:
        page: returns the page behind a place, with at most so many items.
        after: where to begin.
        most: how many to yield at most.

    Raises:
        ClientError: as `page` does, after what it has returned before.
    """
    behind: int | None = after
    while behind is not None and most != 0:
        found = await page(behind, PAGE if most is None else min(most, PAGE))
        behind = found.next
        for item in found.items[:most]:
            yield item
        most = None if most is None else max(0, most - len(found.items))
