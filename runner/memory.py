"""Which memory a thread is bound to: the binding lives on the thread and carries across its runs. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryBinding:
    """Where an agent's memory for a thread is kept; two with the same three words are the same.

    Args:
        connector: the kind of store, as the application calls it.
        instance: which one of that kind.
        scope: which part of it.
    """

    connector: str
    instance: str
    scope: str


def bindings_of(values: Sequence[Mapping[str, Any]]) -> tuple[MemoryBinding, ...]:
    """Return bindings from JSON values, in their order."""
    return tuple(MemoryBinding(each["connector"], each["instance"], each["scope"]) for each in values)


def binding_data(bindings: Sequence[MemoryBinding]) -> list[dict[str, str]]:
    """Return bindings as JSON values, in their order."""
    return [
        {"connector": each.connector, "instance": each.instance, "scope": each.scope} for each in bindings
    ]
