"""What a user declares: which agents there are, and how each gets its dependencies."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from pydantic_ai.agent import AbstractAgent

from threadhold.runner.decisions import Terms
from threadhold.runner.errors import UnknownAgent
from threadhold.runner.policy import Policy
from threadhold.runner.records import OnBusy, Principal

RETRIES_MAX: Final = 100


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
class Retry:
    """Try an abandoned run again, as a new attempt with the history so far.

    What a tool did before the crash is not undone; calls whose outcome nobody knows are not repeated.

    Args:
        times: how often, at most 100.

    Raises:
        ValueError: if it is not from 1 to 100.
    """

    times: int

    def __post_init__(self) -> None:
        if not 1 <= self.times <= RETRIES_MAX:
            raise ValueError(f"times is from 1 to {RETRIES_MAX}")


@dataclass(frozen=True, slots=True)
class Hosted:
    """An agent with what it needs to run here.

    Args:
        agent: the pydantic-ai agent.
        deps: makes the agent's dependencies; called anew at every attempt, may be async.
        on_busy: what a message to a busy thread means unless its sender says so.
        after_abandon: what becomes of a run whose worker has died: it fails, unless it may be tried again.
        terms: who may answer the requests of this agent, and until when, unless a tool sets its own.
        policy: what the agent may do without asking; None for everything.

    Raises:
        ValueError: if `on_busy` is none of these words.
    """

    agent: AbstractAgent[Any, Any]
    deps: Deps | None = None
    on_busy: OnBusy = "steer"
    after_abandon: Retry | None = None
    terms: Terms = field(default_factory=Terms)
    policy: Policy | None = None

    def __post_init__(self) -> None:
        if self.on_busy not in get_args(OnBusy):
            raise ValueError(f"on_busy is one of {', '.join(get_args(OnBusy))}, not {self.on_busy!r}")


class Threadhold:
    """An app: named agents, to be served by API replicas and executed by workers.

    Args:
        agents: the agents by name; a name is what people send to and what a worker offers.

    Raises:
        ValueError: if there is no agent, or a name is not made of letters, digits, `_`, `-` and `.`.
        TypeError: if it is no mapping, or what stands under a name is no agent.
    """

    def __init__(self, agents: Mapping[str, AbstractAgent[Any, Any] | Hosted]) -> None:
        if not isinstance(agents, Mapping):
            raise TypeError("agents have names: Threadhold(agents={'support': agent})")
        if not agents:
            raise ValueError("an app needs at least one agent: Threadhold(agents={'support': agent})")
        for name, spec in agents.items():
            if not _is_name(name):
                raise ValueError(f"{name!r} is not an agent's name; use letters, digits, '_', '-' and '.'")
            agent = spec.agent if isinstance(spec, Hosted) else spec
            if not isinstance(agent, AbstractAgent):
                raise TypeError(f"{name!r} is no pydantic-ai agent but {type(agent).__name__}")
        self._agents = {
            name: spec if isinstance(spec, Hosted) else Hosted(spec) for name, spec in agents.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names, sorted."""
        return tuple(sorted(self._agents))

    @property
    def retries(self) -> dict[str, int]:
        """How often an abandoned run of each agent is tried again."""
        hosted = ((name, self._agents[name].after_abandon) for name in self.names)
        return {name: 0 if retry is None else retry.times for name, retry in hosted}

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
