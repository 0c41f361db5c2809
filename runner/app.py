"""What a user declares: which agents there are, and how each gets its dependencies."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.agent import AbstractAgent

from threadhold.runner.errors import UnknownAgent
from threadhold.runner.records import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """For whom and where a run acts; the same at every attempt, on any machine."""

    principal: Principal
    workspace: str
    thread: str
    run: str
    attempt: int
    fence: int


Deps = Callable[[RunIdentity], Any | Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Hosted:
    """An agent with what it needs to run here.

    Args:
        agent: the pydantic-ai agent.
        deps: makes the agent's dependencies; called anew at every attempt, may be async.
    """

    agent: AbstractAgent[Any, Any]
    deps: Deps | None = None


class Threadhold:
    """An app: named agents, to be served by API replicas and executed by workers.

    Args:
        agents: the agents by name; a name is what people send to and what a worker offers.

    Raises:
        ValueError: if there is no agent, or a name is not made of letters, digits, `_`, `-` and `.`.
    """

    def __init__(self, agents: Mapping[str, AbstractAgent[Any, Any] | Hosted]) -> None:
        if not agents:
            raise ValueError("an app needs at least one agent: Threadhold(agents={'support': agent})")
        for name in agents:
            if not _is_name(name):
                raise ValueError(f"{name!r} is not an agent's name; use letters, digits, '_', '-' and '.'")
        self._agents = {
            name: spec if isinstance(spec, Hosted) else Hosted(spec) for name, spec in agents.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names, sorted."""
        return tuple(sorted(self._agents))

    def hosted(self, name: str) -> Hosted:
        """Return an agent by name.

        Raises:
            UnknownAgent: if the app has none of that name.
        """
        try:
            return self._agents[name]
        except KeyError:
            raise UnknownAgent(name, self.names) from None


def _is_name(name: str) -> bool:
    stripped = name.replace("_", "").replace("-", "").replace(".", "")
    return 0 < len(name) <= 64 and name.isascii() and stripped.isalnum()
