"""What an attempt goes on from. Values in, values out."""

from collections.abc import Sequence

from pydantic_ai import DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelResponse


def has_rejected(results: DeferredToolResults) -> bool:
    """Tell whether people have rejected something that an agent wanted to do."""
    return any(result is False or isinstance(result, ToolDenied) for result in results.approvals.values())


def without_cut_off(
    messages: Sequence[ModelMessage] | None, returned: Sequence[ModelMessage]
) -> list[ModelMessage] | None:
    """Return what another worker goes on from: without a response that was cut off, with what tools have returned."""
    if messages is None:
        return None
    kept = list(messages)
    for index in range(len(kept) - 1, -1, -1):
        last = kept[index]
        if isinstance(last, ModelResponse):
            if last.state == "interrupted":
                del kept[index:]
            elif index == len(kept) - 1:
                kept += returned
            break
    return kept
