"""Decides about each tool call before it runs, by its agent's policy, and says so on the record."""

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from pydantic import TypeAdapter

from threadhold.runner.decisions import RULE_KEY, Terms
from threadhold.runner.meter import ARGS_CHARS_MAX
from threadhold.runner.policy import Evaluation, Policy, ToolAsk, Verdict, evaluate
from threadhold.runner.records import NewFact, Principal, Start
from threadhold.runner.storable import bounded, storable

PRODUCTION: Final = "production"
"""Where whoever asks may not approve, unless a rule's own terms say otherwise."""
OTHER_ARGS: Final = "an approval that was given for something else does not hold for it; ask for it as it is"

_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is to become of a call, with the fact that says why.

    Args:
        verdict: what the policy says, after what people have approved was taken into account.
        text: why, for the model or for people.
        terms: who may approve.
        rule: that decided.
        fact: for the record.
        grant: the capability whose grant would allow it all the same.
    """

    verdict: Verdict
    text: str
    terms: Terms
    rule: str
    fact: NewFact
    grant: str | None = None

    def granted(self) -> NewFact:
        """Return what is on record if a grant allows it."""
        return NewFact(kind=self.fact.kind, data=self.fact.data | {"verdict": "allow", "grant": self.grant})

    def asking(self) -> dict[str, Any]:
        """Return the metadata of the request that an escalation makes."""
        told = {"reason": self.text} if self.text else {}
        return {RULE_KEY: self.rule, **told, **self.terms.metadata()}

    def denial(self) -> str:
        """Return what the model is told of a denial."""
        why = f": {self.text}" if self.text else ""
        return f"Denied by policy (rule {self.rule!r}){why}. Nothing was executed."


class Admission:
    """Judges the calls of one run.

    Args:
        policy: of the agent.
        start: the run, with its principal.
        terms: who may approve what a rule without terms escalates.
    """

    def __init__(self, policy: Policy, *, start: Start, terms: Terms) -> None:
        self._policy = policy
        self._agent = start.agent
        self._principal = Principal(id=start.principal, workspace=start.workspace, roles=start.roles)
        self._environment = start.environment
        self._terms = terms

    @classmethod
    def under(cls, policy: Policy | None, *, start: Start, terms: Terms) -> "Admission | None":
        """Return what judges the calls of a run, None if its agent may do everything."""
        return None if policy is None else cls(policy, start=start, terms=terms)

    def of(self, agent: str) -> "Admission":
        """Return what judges the calls of another agent, which this one's run delegates to, by the same policy."""
        other = copy(self)
        other._agent = agent
        return other

    def judge(
        self, call_id: str, tool: str, args: Any, *, approved: bool, approved_rule: str | None
    ) -> Ruling:
        """Return what is to become of a call.

        An approval holds for the rule that asked for it and for no other: arguments that people have edited may come
        under one that wants somebody else's word.

        Args:
            call_id, tool, args: the call, with its arguments as the tool would get them.
            approved: whether people have approved it.
            approved_rule: the rule that they were asked by.
        """
        found = evaluate(self._policy, self._ask(tool, as_asked(args)))
        given = normalized(args)
        verdict, text = found.verdict, found.reason
        if verdict == "escalate" and approved:
            verdict, text = ("allow", text) if approved_rule == found.rule else ("deny", OTHER_ARGS)
        data = {
            "call_id": call_id,
            "tool": tool,
            "args": bounded(given, chars=ARGS_CHARS_MAX),
            "verdict": verdict,
            "rule": found.rule,
            "reason": text,
            "approved": approved,
            "environment": self._environment,
            "branches": [asdict(branch) for branch in found.branches],
        }
        fact = NewFact(kind="policy_evaluated", data=data)
        grant = None if verdict == "allow" else found.grant
        return Ruling(verdict, text, self._terms_of(found), found.rule, fact, grant)

    def _ask(self, tool: str, args: dict[str, Any]) -> ToolAsk:
        return ToolAsk(
            agent=self._agent,
            tool=tool,
            args=args,
            principal=self._principal,
            environment=self._environment,
        )

    def _terms_of(self, found: Evaluation) -> Terms:
        if found.terms is not None:
            return found.terms
        own = self._terms
        return Terms(
            approvers=own.approvers,
            other_only=own.other_only or self._environment == PRODUCTION,
            expires_in=own.expires_in,
        )


def normalized(args: Any) -> dict[str, Any]:
    """Return the arguments of a call as JSON values, in the one form in which they are on record."""
    value = storable(_ANY.dump_python(args, mode="json", fallback=str))
    return value if isinstance(value, dict) else {"value": value}


def as_asked(args: Any) -> dict[str, Any]:
    """Return the arguments of a call in the one form in which rules see them: JSON values, but for numbers."""
    value = _plain(_ANY.dump_python(args, mode="python", fallback=str))
    return value if isinstance(value, dict) else {"value": value}


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int() | float() | Decimal():
            return value
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case _:
            return storable(_ANY.dump_python(value, mode="json", fallback=str))
