"""What a run may spend: limits, prices, and what is set aside for a call of a model. Values in, values out.

A call's cost is known only once it has ended. So what it may come to is set aside before, and settled after: a worker
that dies in between leaves it counted as spent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, get_args

from threadhold.runner.records import Role

Scope = Literal["run", "thread", "principal", "workspace"]
Every = Literal["day", "month"]
Unknown = Literal["refuse", "free"]

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""In the order in which their rows are locked."""
DEPTH: Final = 5
OUTPUT_TOKENS: Final = 16_384
BYTES_PER_TOKEN: Final = 2
"""Half of what English has, so that what is set aside is rarely too little."""
MESSAGE_TOKENS: Final = 8
"""What a provider adds to each message."""
MILLION: Final = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be spent in one place; None for as much as one likes.

    Args:
        model_calls, tool_calls: how many, those of agents that are delegated to included.
        tokens: of input and output together.
        seconds: of work; the time that a run waits for people or for a worker does not count.
        money: in US dollars.
        every: begin anew each "day" or "month", by UTC; None to count for good.

    Raises:
        ValueError: if a limit is below zero, or `every` is none of these words.
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    money: Decimal | None = None
    every: Every | None = None

    def __post_init__(self) -> None:
        limits = (self.model_calls, self.tool_calls, self.tokens, self.seconds, self.money)
        if any(limit is not None and limit < 0 for limit in limits):
            raise ValueError("a limit is zero or more; None is no limit")
        if self.every is not None and self.every not in get_args(Every):
            raise ValueError(f"every is one of {', '.join(get_args(Every))}, not {self.every!r}")

    def data(self, scope: Scope, every: Every | None) -> dict[str, Any]:
        """Return them as JSON values, without those that are none."""
        limits = {
            "every": every,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "money": None if self.money is None else str(self.money),
        }
        return {"scope": scope} | {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs, in US dollars per million tokens.

    Raises:
        ValueError: if a price is below zero.
    """

    input: Decimal
    output: Decimal

    def __post_init__(self) -> None:
        if self.input < 0 or self.output < 0:
            raise ValueError("a price is zero or more")

    def of(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return what these tokens cost."""
        return (self.input * input_tokens + self.output * output_tokens) / MILLION


NO_LIMITS: Final = Limits()
Place = tuple[Scope, Every | None]
"""Where something counts, and by what."""


def _order(place: Place) -> tuple[int, str]:
    """Return the order in which rows are locked, the same for everybody."""
    scope, every = place
    return SCOPES.index(scope), every or ""


@dataclass(frozen=True, slots=True)
class Budget:
    """A profile of limits, under a name that a run is admitted with.

    What is spent is counted in all four places as long as an agent has a budget, whether they are limited or not, and
    there by day and month as any budget of its app does.

    Args:
        name: unique among the budgets of its agent; it stands on record.
        run, thread, principal, workspace: the limits in each place, over all agents that have a budget.
        depth: how deep agents may delegate to agents; 0 for not at all.
        prices: of models by their names, before the list of known prices.
        unknown_price: what becomes of a call whose price nobody knows, if money is limited: it is refused ("refuse"),
            or counts as "free".
        output_tokens: what is set aside for a response, where the model's settings have no `max_tokens`.
        roles: who it is for; the first budget of an agent that fits counts. None for everybody.

    Raises:
        ValueError: if it has no name, a run is limited by day or month, or a number is below zero.
    """

    name: str
    run: Limits = NO_LIMITS
    thread: Limits = NO_LIMITS
    principal: Limits = NO_LIMITS
    workspace: Limits = NO_LIMITS
    depth: int = DEPTH
    prices: Mapping[str, Price] = field(default_factory=dict)
    unknown_price: Unknown = "refuse"
    output_tokens: int = OUTPUT_TOKENS
    roles: Sequence[Role] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a budget has a name, which runs are admitted with")
        if self.run.every is not None:
            raise ValueError("a run's limits count for the whole run")
        if self.depth < 0 or self.output_tokens < 0:
            raise ValueError("depth and output_tokens are zero or more")
        if self.unknown_price not in get_args(Unknown):
            raise ValueError(f"unknown_price is one of {', '.join(get_args(Unknown))}")

    def is_for(self, roles: Iterable[Role]) -> bool:
        """Tell whether it is for somebody with these roles."""
        return self.roles is None or not set(self.roles).isdisjoint(roles)

    @property
    def places(self) -> dict[Place, Limits]:
        """Its limits, by where and how they count."""
        each = (self.run, self.thread, self.principal, self.workspace)
        return {(scope, limits.every): limits for scope, limits in zip(SCOPES, each, strict=True)}

    @property
    def limits_money(self) -> bool:
        """Whether money is limited anywhere."""
        return any(limits.money is not None for limits in self.places.values())

    def limits(self, counted: Collection[Place] = ()) -> list[dict[str, Any]]:
        """Return all limits as JSON values, in the order in which they are looked at.

        Args:
            counted: where and how else other budgets count: what is spent under this one counts there as well.
        """
        own = self.places
        return [own.get(place, NO_LIMITS).data(*place) for place in sorted({*own, *counted}, key=_order)]


class BudgetExhausted(Exception):
    """A limit is reached; the run fails with the reason `budget_exhausted`, which names it.

    Args:
        reached: the limits that are, as JSON values: `scope`, `id`, `limit`, `max` and `spent`.
        all_limits: each limit as it stood.
    """

    def __init__(
        self, reached: Sequence[Mapping[str, Any]], all_limits: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        first = reached[0]
        every = {"day": " of the day", "month": " of the month"}.get(first.get("every", ""), "")
        super().__init__(
            f"the {first['scope']} has used up its {first['limit']}{every}: {first['spent']} of {first['max']}"
        )
        self.limits = [dict(limit) for limit in all_limits]
        self.data = {name: first[name] for name in ("scope", "id", "limit", "max", "spent")}


class PriceUnknown(Exception):
    """Money is limited and nobody knows what a model costs."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"money is limited, and the price of model {model!r} is not known: name it in the budget's `prices`, "
            "or let it count as free with `unknown_price`"
        )


class BudgetHeld(Exception):
    """A limit would be reached if calls under way came to what is set aside for them; it may be worth a wait."""

    def __init__(self, limits: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("what is left of the budget is set aside for calls under way")
        self.limits = list(limits)


class NoGrant(Exception):
    """No grant of a capability has a use left."""

    def __init__(self, capability: str) -> None:
        super().__init__(f"there is no grant of {capability!r}, or none with a use left")
        self.capability = capability


def refusal(outcome: str, limits: Sequence[Mapping[str, Any]], *, capability: str) -> Exception:
    """Return why something may not be spent, as the store has said it."""
    match outcome:
        case "no_grant":
            return NoGrant(capability)
        case "wait":
            return BudgetHeld(limits)
        case _:
            return BudgetExhausted([limit for limit in limits if limit["matched"]], limits)


def first_to_run_out(limits: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the limit of time that is reached first, if there is one."""
    timed = [limit for limit in limits if limit["limit"] == "seconds"]
    return min(timed, key=lambda limit: limit["max"] - limit["spent"], default=None)


def estimated_tokens(size: int, messages: int) -> int:
    """Return how many tokens of input so many bytes of text in so many messages are at most, as a rule."""
    return -(-size // BYTES_PER_TOKEN) + MESSAGE_TOKENS * messages
