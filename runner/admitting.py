"""What runs are admitted with: fixed with the message that starts a run, before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadhold.runner.budget import Budget
from threadhold.runner.records import DEVELOPMENT, Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitting:
    """What this process admits runs with.

    Args:
        environment: where it runs.
        budgets: of each agent that has any; the first one that is for a principal counts.
    """

    environment: str = DEVELOPMENT
    budgets: Mapping[str, Sequence[Budget]] = field(default_factory=dict)

    def of(self, by: Principal) -> dict[str, Any]:
        """Return it as JSON values, for what somebody does; an agent that is not among the budgets has none."""
        fitting = {agent: first_for(by, budgets) for agent, budgets in self.budgets.items()}
        named = {agent: budget.name for agent, budget in fitting.items() if budget is not None}
        return {"interface": by.interface, "environment": self.environment, "budgets": named}


PLAIN: Final = Admitting()
"""What a process admits with that says nothing about it."""


def first_for(by: Principal, budgets: Sequence[Budget]) -> Budget | None:
    """Return the first budget that is for a principal, if there is one."""
    return next((budget for budget in budgets if budget.is_for(by.roles)), None)
