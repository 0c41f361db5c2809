"""The part of the Runner that is about who else may see a thread."""

from typing import get_args

from threadhold.runner.errors import InvalidInput
from threadhold.runner.ids import canonical
from threadhold.runner.operating import Operating
from threadhold.runner.principals import checked_principal
from threadhold.runner.records import Access, Member, Principal


class Sharing(Operating):
    """Lets people into threads and out; each call is checked like any other."""

    async def members(self, thread: str, *, by: Principal) -> list[Member]:
        """Return who may see a thread beside its owner, by name; at most 1,000.

        Raises:
            NotFound, Unavailable, Closed.
        """
        self._check_open()
        return await self._threads.members(canonical(thread, "thread"), by=by)

    async def set_member(self, thread: str, member: str, access: Access, *, by: Principal) -> Member:
        """Let somebody of the workspace read a thread, or write to it as well; for its owner and for operators.

        Args:
            thread: which.
            member: the id of a principal, known here or not yet.
            access: "read" or "write"; takes the place of what they had.
            by: who says so.

        Raises:
            InvalidInput, NotFound, OwnersOnly, MembersFull, Unavailable, Closed.
        """
        self._check_open()
        if access not in get_args(Access):
            raise InvalidInput(f"access is one of {', '.join(get_args(Access))}", field="access")
        member = checked_principal(member, "member")
        return await self._threads.set_member(canonical(thread, "thread"), member, access, by=by)

    async def remove_member(self, thread: str, member: str, *, by: Principal) -> None:
        """Let somebody out, whether they were in or not; for the owner and for operators.

        What they watch ends when it is looked at again, within a minute.

        Raises:
            InvalidInput, NotFound, OwnersOnly, Unavailable, Closed.
        """
        self._check_open()
        member = checked_principal(member, "member")
        await self._threads.remove_member(canonical(thread, "thread"), member, by=by)
