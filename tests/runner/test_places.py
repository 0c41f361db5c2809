"""Where the functions of tools stand."""

import functools
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.toolsets import FunctionToolset

from threadhold.claims import Blocker
from threadhold.runner.places import place_of


def plain(text: str) -> str:
    """Return a text."""
    return text


@functools.wraps(plain)
def wrapped(*args: Any, **options: Any) -> Any:
    return plain(*args, **options)


async def waits() -> str:
    """Return nothing."""
    return ""


def line_of(function: Any) -> str:
    """Return where a function begins."""
    return f"{__file__}:{function.__code__.co_firstlineno}"


def test_functions_of_an_agent_and_of_its_toolsets_are_found_by_the_tools_name() -> None:
    toolset = FunctionToolset[None]([waits]).prefixed("x").filtered(lambda ctx, tool: True)
    agent = Agent("test", tools=[plain], toolsets=[toolset])
    agent.tool_plain(name="other")(wrapped)
    assert place_of(agent, "plain") == Blocker(line_of(plain), "plain", "plain")
    assert place_of(agent, "other") == Blocker(line_of(plain), "plain", "other")
    assert place_of(agent, "waits") == Blocker(line_of(waits), "waits", "waits")


def test_what_is_no_function_of_the_agents_own_has_only_a_name() -> None:
    assert place_of(Agent("test"), "elsewhere") == Blocker(None, None, "elsewhere")
