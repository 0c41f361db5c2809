"""Messages that are scripts: each carries a tag that is unique in its world, and tells the model what to do.

    @c3-17@ call nap 0.2 + call nap 0.1 ;; call block 1.2 ;; say 5 0.05

One step per model request, separated by `;;`. `say N SECONDS` streams N pieces with a pause before each and ends the
run; `call TOOL SECONDS`, several of them with `+`, calls tools; `raise` makes the provider fail. The newest script in
the history counts. Everything that the model says and the tools return is signed with the fence of its attempt.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolReturnPart,
    UserPromptPart,
)

TAG: Final = re.compile(r"@([a-z0-9-]+)@")
SIGN: Final = re.compile(r"<fence (\d+)>")
DONE: Final = "say 1 0"


def signed(text: str, fence: int) -> str:
    """Return a text that says under which fence it was made."""
    return f"{text} <fence {fence}>"


def written(tag: str, script: str) -> str:
    """Return the text of a message."""
    return f"@{tag}@ {script}"


def drawn(dice: random.Random, weights: Mapping[str, int]) -> str:
    """Draw a script: up to three steps with tools and a last one that speaks, or fails."""
    names, shares = list(weights), list(weights.values())
    steps = dice.choices(names, shares, k=dice.choice((0, 0, 1, 1, 2, 3)))
    return " ;; ".join([*(_step(dice, name) for name in steps), _last(dice)])


def _step(dice: random.Random, name: str) -> str:
    seconds = dice.uniform(*{"block": (0.3, 1.6), "nap": (0.0, 0.6)}.get(name, (0.0, 0.1)))
    call = f"call {name} {seconds:.2f}"
    return f"{call} + call nap {dice.uniform(0.0, 0.3):.2f}" if dice.random() < 0.3 else call


def _last(dice: random.Random) -> str:
    match dice.random():
        case chance if chance < 0.04:
            return "raise"
        case chance if chance < 0.12:
            return f"say {dice.randint(10, 40)} 0.12"
        case _:
            return f"say {dice.randint(1, 6)} {dice.uniform(0.0, 0.08):.2f}"


def due(messages: Sequence[ModelMessage]) -> str:
    """Return the step that is due: as many are used up as responses came after the newest script."""
    script, used = "", 0
    for message in messages:
        if isinstance(message, ModelResponse):
            used += 1
        elif prompts := [part.content for part in message.parts if isinstance(part, UserPromptPart)]:
            script, used = TAG.sub("", str(prompts[-1])), 0
    steps = [step.strip() for step in script.split(";;")]
    return steps[used] if used < len(steps) else DONE


def shown(messages: Sequence[ModelMessage]) -> tuple[list[str], list[str]]:
    """Return the tags that the model is shown as prompts, and those that it is told in results of tools."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    prompts = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
    results = [str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    return TAG.findall(" ".join(prompts)), TAG.findall(" ".join(results))


def signs(messages: Sequence[ModelMessage]) -> list[int]:
    """Return the fences under which the responses of a history were made, in order."""
    found = [SIGN.findall(str(message.text)) for message in messages if isinstance(message, ModelResponse)]
    return [int(fence) for fences in found for fence in fences]
