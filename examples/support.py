"""A support agent with tools, on any provider: set SUPPORT_MODEL to a model of yours."""

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic_ai import Agent

from threadhold import Rejection, Threadhold


@dataclass(frozen=True)
class Order:
    """An order of the shop."""

    id: str
    item: str
    price: float
    status: str


# Stands for the shop's own database. Each worker has its own copy: good enough to try, not to run a shop.
ORDERS = {
    order.id: order
    for order in (
        Order("A-1001", "tea kettle", 39.0, "delivered"),
        Order("A-1002", "desk lamp", 54.5, "shipped"),
        Order("A-1003", "bookshelf", 240.0, "delivered"),
    )
}
REFUND_MAX = 100.0

# defer_model_check: an API replica imports this file too, and needs no key.
agent = Agent(
    os.environ.get("SUPPORT_MODEL", "openai:gpt-5"),
    defer_model_check=True,
    instructions=(
        "You help customers of a small shop. Look an order up before you speak about it. "
        "Refund only delivered orders, and only if the customer asks for it."
    ),
)


@agent.tool_plain
def list_orders() -> list[str]:
    """List the ids of the customer's orders."""
    return sorted(ORDERS)


@agent.tool_plain
def lookup_order(order_id: str) -> dict[str, Any]:
    """Return an order: item, price in euros and status."""
    return asdict(_order(order_id))


@agent.tool_plain
def refund(order_id: str, reason: str) -> str:
    """Refund an order and say why."""
    order = _order(order_id)
    if order.status != "delivered":
        raise Rejection(f"order {order.id} is {order.status}; only delivered orders can be refunded")
    if order.price > REFUND_MAX:
        raise Rejection(
            f"refunds above {REFUND_MAX:.0f} euros need a person; tell the customer that one will call"
        )
    ORDERS[order.id] = replace(order, status="refunded")
    return f"refunded {order.price:.2f} euros for {order.item} ({reason})"


def _order(order_id: str) -> Order:
    try:
        return ORDERS[order_id.strip().upper()]
    except KeyError:
        raise Rejection(f"there is no order {order_id!r}; ask the customer for the number") from None


app = Threadhold(agents={"support": agent})
