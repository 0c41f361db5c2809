"""What an agent may do without asking: ordered rules over its tool calls. Values in, values out.

The first rule that matches decides, as in a firewall; what each rule said is kept, also of those that came too late.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

from threadhold.runner.decisions import Terms
from threadhold.runner.records import Principal, Role

Verdict = Literal["allow", "deny", "escalate"]

RULES_MAX: Final = 1000
ANY_TOOL: Final = "*"
OTHERWISE: Final = "otherwise"
"""What decides where no rule matches is recorded under this name."""

_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAsk:
    """A tool call before it runs: what a rule may look at.

    `args` are the arguments as the tool would get them, as JSON values, but for numbers, which stay what they are: a
    `Decimal` is one, and so is infinity. `environment` is the process's setting.
    """

    agent: str
    tool: str
    args: Mapping[str, Any]
    principal: Principal
    environment: str


@dataclass(frozen=True, slots=True)
class Above:
    """Matches numbers larger than this."""

    limit: float

    def matches(self, value: Any) -> bool:
        """Tell whether a value is such a number."""
        return _is_number(value) and value > self.limit


@dataclass(frozen=True, slots=True)
class Below:
    """Matches numbers smaller than this."""

    limit: float

    def matches(self, value: Any) -> bool:
        """Tell whether a value is such a number."""
        return _is_number(value) and value < self.limit


@dataclass(frozen=True, slots=True)
class OneOf:
    """Matches each of these values."""

    values: Sequence[Any]

    def matches(self, value: Any) -> bool:
        """Tell whether a value is among them."""
        return any(_same(value, each) for each in self.values)


@dataclass(frozen=True, slots=True)
class Like:
    """Matches text by a pattern with `*`, `?` and `[...]`, in which case counts."""

    pattern: str

    def matches(self, value: Any) -> bool:
        """Tell whether a value is such a text."""
        return isinstance(value, str) and fnmatchcase(value, self.pattern)


@dataclass(frozen=True, slots=True)
class Not:
    """Matches what something else does not match, and what is not given at all."""

    what: Any

    def matches(self, value: Any) -> bool:
        """Tell whether it does not match."""
        return not _matches(self.what, value)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Everything that it names has to match; what it does not name may be anything.

    Args:
        name: says on record which rule decided; unique in its policy.
        verdict: "allow", "deny", which the model is told and which executes nothing, or "escalate", which asks people.
        tools: names of tools, or patterns with `*`.
        args: by the path of an argument (`"order.country"`), a value that it equals, or `Above`, `Below`, `OneOf`,
            `Like` or `Not`. An argument that is not given matches nothing but a `Not`.
        roles: the run's principal has one of these.
        environments: the process runs in one of these.
        where: looks at all of it. If it raises, the call is denied.
        reason: what the model or the people who are asked are told.
        terms: who may approve, and until when; of "escalate".
        grant: a capability that allows what is denied or escalated otherwise: each call takes one use of a grant of it,
            before it runs and for good.

    Raises:
        ValueError: if it has no name or an unknown verdict, names no tool, or needs a grant for what it allows.
    """

    name: str
    verdict: Verdict
    tools: Sequence[str] = (ANY_TOOL,)
    args: Mapping[str, Any] = field(default_factory=dict)
    roles: Sequence[Role] = ()
    environments: Sequence[str] = ()
    where: Callable[[ToolAsk], bool] | None = None
    reason: str = ""
    terms: Terms | None = None
    grant: str | None = None

    def __post_init__(self) -> None:
        if self.grant is not None and (self.verdict == "allow" or not self.grant):
            raise ValueError(f"rule {self.name!r} allows without a grant; deny or escalate what needs one")
        if not self.name:
            raise ValueError("a rule has a name, which says on record what decided")
        if self.verdict not in get_args(Verdict):
            raise ValueError(f"verdict is one of {', '.join(get_args(Verdict))}, not {self.verdict!r}")
        if isinstance(self.tools, str) or not self.tools:
            raise ValueError(f"tools of rule {self.name!r} is a list of names: [{self.tools!r}]")

    def matches(self, ask: ToolAsk) -> bool:
        """Tell whether the rule is about this call."""
        return (
            any(fnmatchcase(ask.tool, pattern) for pattern in self.tools)
            and (not self.roles or not ask.principal.roles.isdisjoint(self.roles))
            and (not self.environments or ask.environment in self.environments)
            and all(_matches(what, _at(ask.args, path)) for path, what in self.args.items())
            and (self.where is None or bool(self.where(ask)))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Ordered rules; the first that matches decides.

    Args:
        rules: at most 1,000.
        otherwise: what decides where none matches.

    Raises:
        ValueError: if there are too many, or two of one name.
    """

    rules: Sequence[Rule] = ()
    otherwise: Verdict = "allow"

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if len(names) > RULES_MAX or len({*names, OTHERWISE}) <= len(names):
            raise ValueError(
                f"a policy has at most {RULES_MAX} rules, each with another name, none {OTHERWISE!r}"
            )
        if self.otherwise not in get_args(Verdict):
            raise ValueError(f"otherwise is one of {', '.join(get_args(Verdict))}, not {self.otherwise!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What one rule would have done with a call: `matched`, and whether it was `taken`.

    `error` is why its predicate could not be asked.
    """

    rule: str
    verdict: Verdict
    matched: bool
    taken: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a policy says of a call, by which rule, and what the others would have said, in their order."""

    verdict: Verdict
    rule: str
    reason: str
    terms: Terms | None
    grant: str | None
    branches: tuple[Branch, ...]


def evaluate(policy: Policy, ask: ToolAsk) -> Evaluation:
    """Return what a policy says of a call.

    All rules are asked, so that the record tells which ones the first match has kept from deciding. A rule that cannot
    be asked counts as a match that denies: nothing is allowed because of a mistake in a rule.
    """
    asked = [_asked(rule, ask) for rule in policy.rules]
    first = next((place for place, branch in enumerate(asked) if branch.matched), len(asked))
    rules = [*policy.rules, Rule(OTHERWISE, policy.otherwise)]
    branches = [*asked, Branch(rule=OTHERWISE, verdict=policy.otherwise, matched=True, taken=False)]
    branches[first] = taken = replace(branches[first], taken=True)
    return Evaluation(
        verdict=taken.verdict,
        rule=taken.rule,
        reason=rules[first].reason if taken.error is None else "this rule could not be asked",
        terms=rules[first].terms,
        grant=rules[first].grant if taken.error is None else None,
        branches=tuple(branches),
    )


def _asked(rule: Rule, ask: ToolAsk) -> Branch:
    try:
        matched = rule.matches(ask)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:200]
        return Branch(rule=rule.name, verdict="deny", matched=True, taken=False, error=text)
    return Branch(rule=rule.name, verdict=rule.verdict, matched=matched, taken=False)


def _at(args: Mapping[str, Any], path: str) -> Any:
    """Return an argument by its path."""
    value: Any = args
    for name in path.split("."):
        value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
    return value


def _matches(what: Any, value: Any) -> bool:
    if isinstance(what, Above | Below | OneOf | Like | Not):
        return what.matches(value)
    return _same(value, what)


def _same(value: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; to Python true equals 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number that can be compared.

    Raises:
        ValueError: it is none of any size, so that the rule cannot be asked.
    """
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return False
    if value != value:
        raise ValueError("this is not a number")
    return True
