"""Requests of a run as a person at a terminal sees them, and what is typed as a decision. Pure."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from threadhold.adapters.cli.failure import CliError
from threadhold.runner.decisions import Decision

VERBS: Final = ("/approve", "/edit", "/reject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that waits for an answer, as the log tells it."""

    id: str
    kind: str
    tool: str
    args: dict[str, Any]
    args_hash: str | None


def typed(verb: str, rest: str) -> Decision:
    """Return the decision that a command of the chat is.

    Raises:
        CliError: it is none.
    """
    match verb:
        case "/approve" if not rest:
            return Decision.approve()
        case "/edit":
            return Decision.edit(arguments(rest))
        case "/reject":
            return Decision.reject(rest or None)
    raise CliError("usage", "/approve stands alone; /edit JSON approves with other arguments")


def arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call.

    Raises:
        CliError: the text is no JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CliError("usage", f'arguments are a JSON object such as {{"amount": 5}}, not {text[:80]!r}')
    return value


def reply(text: str) -> Any:
    """Return what a reply says: a JSON object, list or string as that, anything else as the text it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list | str) else text


def first_for(verb: str, asked: Collection[Asked]) -> Asked | None:
    """Return the oldest request that a command can be meant for."""
    return next((each for each in asked if verb == "/reject" or each.kind == "approval"), None)


def how_to_type(asked: Collection[Asked]) -> str:
    """Return what can be typed in a chat to answer these."""
    kinds = {each.kind for each in asked}
    if kinds == {"question"}:
        return "(type the answer)"
    if kinds == {"approval"}:
        return "(/approve, /edit JSON or /reject [REASON]; any other text rejects it)"
    if kinds == {"external"}:
        return "(the result comes from elsewhere; /reject [REASON] or any other text does without it)"
    return "(a text answers the questions and rejects the rest; /approve, /edit JSON, /reject [REASON] decide one)"


def options(kind: str) -> str:
    """Return the options with which `answer` answers a request of this kind."""
    if kind == "approval":
        return "--approve | --edit JSON | --reject [REASON]"
    return "--reply TEXT | --reject [REASON]"
