"""What a user declares: which agents there are, and how each gets its dependencies."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal, get_args

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import ModelAPIError

from threadhold.runner.bindings import Binding, Resolver
from threadhold.runner.budget import Budget, Place
from threadhold.runner.decisions import Terms
from threadhold.runner.errors import UnknownAgent
from threadhold.runner.identity import RunIdentity
from threadhold.runner.policy import Policy
from threadhold.runner.records import OnBusy
from threadhold.runner.window import Window

OnReject = Literal["resume", "fail"]

RETRIES_MAX: Final = 100
DELAY_MAX: Final = timedelta(hours=1)


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
class RetryErrors:
    """Try a run again that failed by an error, as a new attempt with the history so far.

    Args:
        times: how often, at most 100.
        delay: before the first time; each later one waits twice as long, at most an hour.
        errors: which; by default what providers of models raise.

    Raises:
        ValueError: if times is not from 1 to 100, or the delay is below nothing or over an hour.
    """

    times: int
    delay: timedelta = timedelta(seconds=1)
    errors: tuple[type[Exception], ...] = (ModelAPIError,)

    def __post_init__(self) -> None:
        if not 1 <= self.times <= RETRIES_MAX:
            raise ValueError(f"times is from 1 to {RETRIES_MAX}")
        if not timedelta(0) <= self.delay <= DELAY_MAX:
            raise ValueError("delay is from nothing to an hour")

    def after(self, error: BaseException, *, tried: int) -> timedelta | None:
        """Return how long to wait after an error of a run that was tried again so often; None for not again."""
        if tried >= self.times or not isinstance(error, self.errors):
            return None
        doubled: int = 2 ** min(tried, 20)
        return min(self.delay * doubled, DELAY_MAX)


@dataclass(frozen=True, slots=True)
class Hosted:
    """An agent with what it needs to run here.

    Args:
        agent: the pydantic-ai agent.
        deps: makes the agent's dependencies; called anew at every attempt, may be async.
        on_busy: what a message to a busy thread means unless its sender says so.
        after_abandon: what becomes of a run whose worker has died: it fails, unless it may be tried again.
        after_error: what becomes of a run that an error has ended: it fails, unless it may be tried again.
        terms: who may answer the requests of this agent, and until when, unless a tool sets its own.
        policy: what the agent may do without asking; None for everything.
        tools: how tools are carried out that need credentials, another process or another time limit, by their names.
        credentials: where each family of credentials that they name comes from.
        budget: what its runs may spend; of several, a run has the first one that is for its principal. None for as much
            as they like, uncounted.
        on_reject: what becomes of a run once people have rejected something: it goes on with that ("resume"), or it
            fails ("fail") with the reason `rejected`.
        window: how much of a thread's history its model is shown, at most.

    Raises:
        ValueError: if `on_busy` is none of these words, or a tool names credentials that are not there.
    """

    agent: AbstractAgent[Any, Any]
    deps: Deps | None = None
    on_busy: OnBusy = "steer"
    after_abandon: Retry | None = None
    after_error: RetryErrors | None = None
    terms: Terms = field(default_factory=Terms)
    policy: Policy | None = None
    tools: Mapping[str, Binding] = field(default_factory=dict)
    credentials: Mapping[str, Resolver] = field(default_factory=dict)
    budget: Budget | Sequence[Budget] | None = None
    on_reject: OnReject = "resume"
    counted: frozenset[Place] = field(default=frozenset(), repr=False)
    """Where, and by what, any budget of its app counts; the app fills it in."""
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        if self.on_busy not in get_args(OnBusy):
            raise ValueError(f"on_busy is one of {', '.join(get_args(OnBusy))}, not {self.on_busy!r}")
        if self.on_reject not in get_args(OnReject):
            raise ValueError(f"on_reject is one of {', '.join(get_args(OnReject))}, not {self.on_reject!r}")
        if len({budget.name for budget in self.budgets}) < len(self.budgets):
            raise ValueError("the budgets of an agent have different names, which runs are admitted with")
        for tool, binding in self.tools.items():
            if binding.credentials is not None and binding.credentials not in self.credentials:
                raise ValueError(
                    f"tool {tool!r} names credentials {binding.credentials!r}, which are not there"
                )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Its budgets, in the order in which they are looked through."""
        if self.budget is None:
            return ()
        return (self.budget,) if isinstance(self.budget, Budget) else tuple(self.budget)

    def budget_named(self, name: str | None) -> Budget | None:
        """Return the budget that a run was admitted with; the first one if that has gone from the app since."""
        if name is None or not self.budgets:
            return None
        return next((budget for budget in self.budgets if budget.name == name), self.budgets[0])


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
        hosted = {name: spec if isinstance(spec, Hosted) else Hosted(spec) for name, spec in agents.items()}
        counted = frozenset(
            place for each in hosted.values() for budget in each.budgets for place in budget.places
        )
        self._agents = {name: replace(each, counted=counted) for name, each in hosted.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names, sorted."""
        return tuple(sorted(self._agents))

    @property
    def retries(self) -> dict[str, int]:
        """How often an abandoned run of each agent is tried again."""
        hosted = ((name, self._agents[name].after_abandon) for name in self.names)
        return {name: 0 if retry is None else retry.times for name, retry in hosted}

    @property
    def budgets(self) -> dict[str, tuple[Budget, ...]]:
        """The budgets of the agents that have any."""
        return {name: hosted.budgets for name, hosted in self._agents.items() if hosted.budgets}

    def bound_to(self, queue: str) -> tuple[str, ...]:
        """Return the tools that executors of a queue carry out, each as `agent.tool`, sorted."""
        return tuple(
            sorted(
                f"{agent}.{tool}"
                for agent, hosted in self._agents.items()
                for tool, binding in hosted.tools.items()
                if binding.executor == queue
            )
        )

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
