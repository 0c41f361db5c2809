"""An agent that asks first: it pays only what a person has allowed, and asks what it does not know.

Set APPROVALS_MODEL to a model of any provider. While it waits, nothing is held: stop every process, answer tomorrow.
"""

import os
from datetime import timedelta

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

from threadhold import Hosted, Rejection, Terms, Threadhold

PAY_ALONE_MAX = 50.0
BUDGET_MAX = 1000.0

agent: Agent[None, str] = Agent(
    os.environ.get("APPROVALS_MODEL", "openai:gpt-5"),
    defer_model_check=True,
    instructions=(
        "You pay invoices for a small office. Pay with the tool, never twice. When you do not know which cost centre "
        "an invoice belongs to, ask. When a payment is not allowed, say so and do nothing else."
    ),
)


@agent.tool
def pay(ctx: RunContext[None], invoice: str, euros: float, cost_centre: str) -> str:
    """Pay an invoice. More than 50 euros need somebody's approval."""
    if not 0 < euros <= BUDGET_MAX:
        raise Rejection(f"a payment is of 0 to {BUDGET_MAX:.0f} euros")
    if euros > PAY_ALONE_MAX and not ctx.tool_call_approved:
        # With `other_only=True` whoever sent the message could not approve; alone on your machine, that is you.
        raise ApprovalRequired(metadata=Terms(expires_in=timedelta(days=2)).metadata())
    return f"paid {euros:.2f} euros for {invoice} ({cost_centre})"


@agent.tool_plain
def ask(question: str) -> str:
    """Ask the person in charge, and get the answer."""
    raise CallDeferred(kind="question")


app = Threadhold(agents={"approvals": Hosted(agent)})
