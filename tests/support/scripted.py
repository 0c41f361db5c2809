"""A model that does what the message tells it, so that a test writes its scenario where it sends it.

A message is a script: steps separated by `;;`, one per model request. Within a step, items separated by `|`:

    say TEXT            one text delta
    spell JSON          the text deltas in a JSON list, whatever characters they hold
    words N SECONDS     N deltas "w1 ", "w2 ", ... with a pause before each
    call TOOL JSON      a tool call
    hold GATE           nothing until the test opens the gate, by making a file of that name
    raise TEXT          the provider fails

Other messages (steering, for example) are not scripts; when the steps are used up, or there are
none, the model answers with what it has been told since: `heard: a, b`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

VERBS = ("say ", "spell ", "words ", "hold ", "call ", "raise ")
GATE_LOOK_S = 0.02


def prompts(messages: list[ModelMessage]) -> list[str]:
    """Return what people said, oldest first."""
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def is_script(text: str) -> bool:
    """Tell whether a message is a script."""
    return text.startswith(VERBS)


def next_step(messages: list[ModelMessage]) -> str:
    """Return the step that is due: as many steps are used up as responses came after the newest script."""
    script, used = "", 0
    for message in messages:
        if isinstance(message, ModelResponse):
            used += 1
            continue
        scripts = [text for text in prompts([message]) if is_script(text)]
        if scripts:
            script, used = scripts[-1], 0
    steps = [step.strip() for step in script.split(";;")] if script else []
    if used < len(steps):
        return steps[used]
    heard = [text for text in prompts(messages) if not is_script(text)]
    return f"say heard: {', '.join(heard)}"


async def stream(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Play the step that is due."""
    for index, item in enumerate(next_step(messages).split("|")):
        verb, _, rest = item.strip().partition(" ")
        async for delta in play(verb, rest, index, len(messages)):
            yield delta


async def play(verb: str, rest: str, index: int, turn: int) -> AsyncIterator[Any]:
    """Play one item."""
    match verb:
        case "say":
            yield rest
        case "spell":
            for text in json.loads(rest):
                yield text
        case "words":
            count, pause = rest.split()
            for word in range(1, int(count) + 1):
                await asyncio.sleep(float(pause))
                yield f"w{word} "
        case "hold":
            await opened(rest)
        case "call":
            tool, _, args = rest.partition(" ")
            json.loads(args or "{}")
            yield {
                index: DeltaToolCall(name=tool, json_args=args or "{}", tool_call_id=f"call_{turn}_{index}")
            }
        case _:
            raise RuntimeError(rest or f"unknown item {verb!r}")


def is_open(gate: str) -> bool:
    """Tell whether a gate is open."""
    return Path(gate).exists()


async def opened(gate: str) -> None:
    """Return when a gate is open."""
    while not is_open(gate):
        await asyncio.sleep(GATE_LOOK_S)


def scripted_model() -> FunctionModel:
    """Return the model."""
    return FunctionModel(stream_function=stream, model_name="scripted")
