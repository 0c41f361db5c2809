"""What calls of models cost, by a budget's own prices or by the list that pydantic-ai comes with."""

from collections.abc import Mapping
from decimal import Decimal

import genai_prices
from pydantic_ai.messages import ModelResponse

from threadhold.runner.budget import Price


def price_of(
    model: str, input_tokens: int, output_tokens: int, *, prices: Mapping[str, Price], provider: str | None
) -> Decimal | None:
    """Return what a call would cost, None if nobody knows.

    Args:
        model: its name.
        input_tokens, output_tokens: of the call.
        prices: those that count first.
        provider: who runs the model, as pydantic-ai names them.
    """
    if own := prices.get(model):
        return own.of(input_tokens, output_tokens)
    usage = genai_prices.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    for known in (provider, None):
        try:
            return genai_prices.calc_price(usage, model, provider_id=known).total_price
        except (LookupError, ValueError):
            continue
    return None


def cost_of(response: ModelResponse, *, model: str, prices: Mapping[str, Price]) -> Decimal | None:
    """Return what a response has cost, None if nobody knows.

    Args:
        response: with its usage.
        model: as it was asked by its name.
        prices: those that count first.
    """
    usage = response.usage
    own = prices.get(model) or prices.get(response.model_name or "")
    return own.of(usage.input_tokens, usage.output_tokens) if own else usage.cost
