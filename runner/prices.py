"""What calls of models cost, by a budget's own prices or by the list that pydantic-ai comes with."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

import genai_prices
from pydantic_ai.usage import RequestUsage

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


def cost_of(
    usage: RequestUsage, *, names: Sequence[str], prices: Mapping[str, Price], provider: str | None
) -> Decimal | None:
    """Return what a response has cost, None if nobody knows.

    Args:
        usage: of the response.
        names: of the model, as it was asked and as it calls itself; deployments and routers have others than lists.
        prices: those that count first.
        provider: who runs the model, as pydantic-ai names them.
    """
    own = next((prices[name] for name in names if name in prices), None)
    if own is not None:
        return own.of(usage.input_tokens, usage.output_tokens)
    if usage.cost is not None:
        return usage.cost
    priced = (
        price_of(name, usage.input_tokens, usage.output_tokens, prices={}, provider=provider)
        for name in names
    )
    return next((price for price in priced if price is not None), None)
