"""What each model call took and cost, as facts."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart

from threadhold.runner.records import NewFact
from threadhold.runner.storable import bounded

ARGS_CHARS_MAX: Final = 16 * 1024


class Meter:
    """Describes the responses of one attempt, with the cost so far."""

    def __init__(self) -> None:
        self._cost = Decimal(0)
        self._timed: ModelResponse | None = None
        self._latency_ms = 0.0

    def time(self, response: ModelResponse, seconds: float) -> None:
        """Note how long the newest response took."""
        self._timed, self._latency_ms = response, round(seconds * 1000, 1)

    def describe(self, messages: Sequence[ModelMessage]) -> list[NewFact]:
        """Return a `model_called` for each response among these messages."""
        facts, total = [], self._cost
        for response in _responses(messages):
            total += response.usage.cost or Decimal(0)
            facts.append(NewFact(kind="model_called", data=self._described(response, total)))
        return facts

    def settle(self, messages: Sequence[ModelMessage]) -> None:
        """Count the cost of these messages, once they are recorded."""
        self._cost += sum(
            (response.usage.cost or Decimal(0) for response in _responses(messages)), Decimal(0)
        )

    def add(self, response: ModelResponse) -> Decimal:
        """Count a response of an agent that was delegated to, and return the cost so far."""
        self._cost += response.usage.cost or Decimal(0)
        return self._cost

    def _described(self, response: ModelResponse, total: Decimal) -> dict[str, Any]:
        latency_ms = self._latency_ms if response is self._timed else None
        return described(response, latency_ms=latency_ms, total=total)


def described(response: ModelResponse, *, latency_ms: float | None, total: Decimal) -> dict[str, Any]:
    """Return what a response is on record.

    Args:
        response: of a model.
        latency_ms: for how long it was waited for, in milliseconds, if that is known.
        total: what the run has cost so far.
    """
    usage = response.usage
    return {
        "model": response.model_name,
        "state": response.state,
        "text": "".join(part.content for part in response.parts if isinstance(part, TextPart)),
        "calls": [_call(part) for part in response.parts if isinstance(part, ToolCallPart)],
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "latency_ms": latency_ms,
        "cost": None if usage.cost is None else str(usage.cost),
        "cost_total": str(total),
    }


def _call(part: ToolCallPart) -> dict[str, Any]:
    return {"id": part.tool_call_id, "tool": part.tool_name, "args": bounded(part.args, chars=ARGS_CHARS_MAX)}


def _responses(messages: Sequence[ModelMessage]) -> list[ModelResponse]:
    return [message for message in messages if isinstance(message, ModelResponse)]
