"""What the Runner needs to keep grants."""

import builtins
from typing import Protocol

from threadhold.runner.grants import Grant, NewGrant
from threadhold.runner.records import Principal


class GrantStore(Protocol):
    """Grants, for those whom they are for, those who see the threads that they are for, and operators."""

    async def create(self, new: NewGrant, *, by: Principal, key: str | None) -> Grant:
        """Make a grant, repeatably by key; that `by` may is for the caller to know.

        Raises:
            NotFound: the workspace has no such thread.
            KeyConflict: the key stands for another grant.
            GrantsFull: the workspace has as many usable ones as it may have.
        """
        ...

    async def get(self, grant: str, *, by: Principal) -> Grant:
        """Return a grant.

        Raises:
            NotFound: there is none that the principal may see.
        """
        ...

    async def list(self, *, by: Principal, before: str | None, limit: int) -> builtins.list[Grant]:
        """Return grants that the principal may see, newest first."""
        ...

    async def revoke(self, grant: str, *, by: Principal) -> Grant:
        """Let a grant be used no more; one that was revoked before stays as it is.

        Raises:
            NotFound: the workspace has no such grant.
        """
        ...
