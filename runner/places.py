"""Where the functions stand that tools call, for whoever must find the code of a tool."""

from collections.abc import Callable
from inspect import unwrap
from types import CodeType
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from threadhold.claims import Blocker


def place_of(agent: AbstractAgent[Any, Any], tool: str) -> Blocker:
    """Return where a tool's function begins; only its name if it is not a function of the agent's own."""
    code = _code(_functions(agent).get(tool))
    if code is None:
        return Blocker(None, None, tool)
    return Blocker(f"{code.co_filename}:{code.co_firstlineno}", code.co_name, tool)


def _functions(agent: AbstractAgent[Any, Any]) -> dict[str, Callable[..., Any]]:
    functions: dict[str, Callable[..., Any]] = {}

    def visit(toolset: AbstractToolset[Any]) -> None:
        if isinstance(toolset, FunctionToolset):
            functions.update((name, tool.function) for name, tool in toolset.tools.items())

    for toolset in agent.toolsets:
        toolset.apply(visit)
    return functions


def _code(function: Callable[..., Any] | None) -> CodeType | None:
    return None if function is None else getattr(unwrap(function), "__code__", None)
