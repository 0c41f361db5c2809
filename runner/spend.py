"""What was spent in a place, and what the Runner needs to tell it. Values in, values out."""

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from threadhold.runner.records import Principal

SpendScope = Literal["principal", "workspace"]
Counted = Literal["ever", "day", "month"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What agents with a budget have spent for a principal, or in a workspace, since a day or a month began.

    `every` says how it is counted; `since` is None where that is for good. `money` is in US dollars, and `seconds` of
    work. `held_tokens` and `held_money` are set aside for calls of models that are under way, and not spent yet.
    """

    scope: SpendScope
    id: str
    every: Counted
    since: datetime | None
    model_calls: int
    tool_calls: int
    tokens: int
    money: str
    seconds: float
    held_tokens: int
    held_money: str


class SpendStore(Protocol):
    """What was spent, by workspace and principal; who may see it is for the caller to know."""

    async def list(self, *, by: Principal, principal: str | None, limit: int) -> builtins.list[Spend]:
        """Return what was spent in the workspace of `by`, the newest periods first, and in each who spent most.

        Args:
            by: who asks.
            principal: only what this one has spent; None for all principals, and the workspace before them.
            limit: how many at most.
        """
        ...
