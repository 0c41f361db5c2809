"""What governed a run, in sentences for whoever is on call: how it came in, what it spent, who decided what. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from threadhold.adapters.cli.durations import brief, clock
from threadhold.runner.records import Run, Why

DECISIONS_MAX: Final = 20
_ANSWERS: Final = {
    "approve": "approved",
    "edit": "approved with other arguments",
    "reject": "rejected",
    "reply": "answered",
    "cancelled": "closed unanswered",
}


def admission(run: Run) -> str:
    """Return what a run was admitted with."""
    budget = f"under the budget {run.budget!r}" if run.budget else "without a budget"
    return f"It came in by {run.interface}, in {run.environment}, {budget}."


def spending(why: Why) -> Iterator[str]:
    """Yield what a run has spent, and how its budget stands."""
    if why.spent.get("model_calls"):
        yield f"Spent: {spent(why.spent)}."
    for place in why.charged:
        since = f" since {place['since'][:10]}" if place["since"] else ""
        calls = f"{place['model_calls']} model calls, {place['tool_calls']} tool calls"
        money = f", {_dollars(place['money'])}" if _dollars(place["money"]) else ""
        held = f", {place['held_tokens']} more set aside" if place["held_tokens"] else ""
        worked = brief(float(place["seconds"]))
        yield f"  its {place['scope']}{since}: {calls}, {place['tokens']} tokens{held}{money}, {worked} of work"


def spent(spend: dict[str, Any]) -> str:
    """Return what calls of models came to."""
    cost = _dollars(str(spend.get("cost") or "0"))
    return (
        f"{spend.get('model_calls', 0)} model calls, {spend.get('input_tokens', 0)} tokens in, "
        f"{spend.get('output_tokens', 0)} out{f', {cost}' if cost else ''}"
    )


def decisions(why: Why) -> Iterator[str]:
    """Yield who or what decided about the calls of a run, the newest of many."""
    told = [f"  {clock(str(each['at']))}  {line}" for each in why.decisions if (line := _decision(each))]
    if told:
        more = len(told) - DECISIONS_MAX
        yield f"Decisions{f', without the {more} oldest ones' if more > 0 else ''}:"
        yield from told[-DECISIONS_MAX:]


def _decision(fact: dict[str, Any]) -> str | None:
    match fact["fact"]:
        case "policy_evaluated":
            return _ruled(fact)
        case "grant_used":
            use = f"use {fact['use']} of {fact['of']}"
            return f"{fact['capability']} granted by {fact['granted_by']}, {use}"
        case "budget_exhausted":
            limit = f"{fact['limit']} of its {fact['scope']}"
            return f"budget: {limit} used up, {fact['spent']} of {fact['max']}"
        case "request_answered":
            what = fact.get("tool") or fact.get("kind")
            said = f": {fact['reason']}" if fact.get("reason") else ""
            return f"{what} {_ANSWERS.get(fact['decision'], fact['decision'])} by {fact['by']}{said}"
        case _:
            return None


def _ruled(fact: dict[str, Any]) -> str | None:
    """Return what a policy said; that nothing spoke against a call goes without saying."""
    if fact["verdict"] == "allow" and fact["rule"] == "otherwise":
        return None
    verdict = {"allow": "allowed", "deny": "denied", "escalate": "put to people"}[fact["verdict"]]
    grant = f", by a grant of {fact['grant']}" if fact.get("grant") else ""
    approved = ", as people have approved" if fact["approved"] and fact["verdict"] == "allow" else ""
    said = f" ({fact['reason']})" if fact.get("reason") else ""
    return f"{fact['tool']} {verdict} by rule {fact['rule']!r}{grant}{approved}{said}"


def _dollars(amount: str) -> str:
    """Return an amount of money, empty if it is none."""
    return f"{amount} dollars" if amount.strip("0.") else ""
