"""What one attempt spends: looked at and set aside before each call of a model or a tool, settled after a model's."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import uuid4

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, SystemPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_core import to_json

from threadhold.runner.budget import (
    Budget,
    BudgetExhausted,
    BudgetHeld,
    PriceUnknown,
    estimated_tokens,
    first_to_run_out,
)
from threadhold.runner.journal import Journal
from threadhold.runner.prices import cost_of, price_of
from threadhold.runner.records import NewFact
from threadhold.runner.shortening import chars_of

HELD_S_MAX: Final = 60.0
HELD_FIRST_S: Final = 0.05
HELD_PAUSE_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """What was set aside for one call of a model."""

    call: str
    model: str


class Spending:
    """Keeps one attempt within its budget.

    Args:
        budget: the limits.
        journal: where what is spent is recorded.
        on_timeout: called with the limit once time is up.
        clock: seconds, for how long to wait for calls of others.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        journal: Journal,
        on_timeout: Callable[[BudgetExhausted], None],
        clock: Callable[[], float],
    ) -> None:
        self.budget = budget
        self._journal = journal
        self._on_timeout = on_timeout
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._uncounted: list[SetAside] = []
        self._settling: set[asyncio.Task[None]] = set()

    async def before_model(self, asked: ModelRequestContext, *, agent: str, depth: int = 0) -> SetAside:
        """Set aside what a call may come to; waits a while where only calls under way are in the way.

        Args:
            asked: the call.
            agent: who makes it.
            depth: how many agents have delegated to it.

        Raises:
            BudgetExhausted: a limit is reached; that is on record.
            PriceUnknown: money is limited and the price is not known.
        """
        aside = SetAside(call=str(uuid4()), model=asked.model.model_name)
        tokens, money = self._estimate(asked)
        spend = {
            "kind": "model",
            "id": aside.call,
            "agent": agent,
            "depth": depth,
            "model": aside.model,
            "tokens": tokens,
            "money": str(money),
        }
        try:
            await self._spend(spend, told={"call": "model", "model": aside.model})
        except BaseException:
            # It may have been set aside all the same: whoever waited for it was told to stop meanwhile.
            self._settle(aside, 0, 0, Decimal(0))
            raise
        return aside

    def drop(self, aside: SetAside) -> None:
        """Give back what was set aside for a call that was not made."""
        self._settle(aside, 0, 0, Decimal(0))

    def after_model(self, asides: Sequence[SetAside], asked: ModelRequestContext) -> None:
        """Settle a call by the responses that its provider has billed; what nobody can tell stays counted as it is.

        Args:
            asides: what was set aside for it; more than once where something has asked the model again by itself.
            asked: the call, which knows what came of it.
        """
        for unused in asides[:-1]:
            self.drop(unused)
        responses = asked._usage_responses
        if not asides:
            return
        aside, prices = asides[-1], self.budget.prices
        if not responses or any(_is_unmeasured(response) for response in responses):
            self._uncounted.append(aside)
            return
        costs = [cost_of(response, model=aside.model, prices=prices) for response in responses]
        known = [cost for cost in costs if cost is not None]
        self._settle(
            aside,
            sum(response.usage.input_tokens for response in responses),
            sum(response.usage.output_tokens for response in responses),
            sum(known, Decimal(0)) if len(known) == len(costs) else None,
        )

    def ended_by(self, error: BaseException | None) -> None:
        """Give back what was set aside for calls that their provider refused: it does not bill them.

        Of any other end without a count nobody can tell.

        Args:
            error: by which the agent has ended; None if by none.
        """
        if isinstance(error, ModelHTTPError):
            for aside in self._uncounted:
                self.drop(aside)
        self._uncounted.clear()

    async def before_tool(self, call_id: str, tool: str, *facts: NewFact, grant: str | None = None) -> None:
        """Count a call of a tool together with the facts that say that it starts.

        Raises:
            BudgetExhausted: a limit is reached; that is on record, and the facts are not.
            NoGrant: no grant of the capability has a use left; nothing is on record.
        """
        spend = {"kind": "tool", "call_id": call_id} | ({} if grant is None else {"grant": grant})
        await self._spend(spend, *facts, told={"call": "tool", "call_id": call_id, "tool": tool})

    async def settled(self) -> None:
        """Return when all calls that have ended are settled."""
        while self._settling:
            await asyncio.wait(self._settling)

    def close(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()

    async def _spend(self, spend: dict[str, Any], *facts: NewFact, told: dict[str, Any]) -> None:
        await self.settled()
        end, pause = self._clock() + HELD_S_MAX, HELD_FIRST_S
        while True:
            try:
                limits = await self._journal.note(*facts, spend=spend | {"limits": self.budget.limits})
            except BudgetHeld as held:
                if self._clock() > end:
                    reached = [limit for limit in held.limits if limit["held"]]
                    raise await self._exhausted(BudgetExhausted(reached, held.limits), told) from None
                await asyncio.sleep(pause)
                pause = min(pause * 2, HELD_PAUSE_S_MAX)
            except BudgetExhausted as exhausted:
                raise await self._exhausted(exhausted, told) from None
            else:
                self._mind_time(limits)
                return

    async def _exhausted(self, error: BudgetExhausted, told: dict[str, Any]) -> BudgetExhausted:
        """Record that a limit is reached."""
        data = {**told, "budget": self.budget.name, **error.data, "limits": error.limits}
        await self._journal.note(NewFact(kind="budget_exhausted", data=data))
        return error

    def _mind_time(self, limits: Sequence[dict[str, Any]]) -> None:
        """Set the clock to when time is up."""
        self.close()
        if (limit := first_to_run_out(limits)) is not None:
            up = BudgetExhausted([{**limit, "spent": limit["max"]}], limits)
            left = max(0.0, limit["max"] - limit["spent"])
            self._timer = asyncio.get_running_loop().call_later(left, self._on_timeout, up)

    def _estimate(self, asked: ModelRequestContext) -> tuple[int, Decimal]:
        """Return how many tokens a call may take and what they may cost."""
        given = estimated_tokens(_chars_of(asked), len(asked.messages))
        said = (asked.model_settings or {}).get("max_tokens", self.budget.output_tokens)
        name, provider = asked.model.model_name, asked.model.system
        money = price_of(name, given, said, prices=self.budget.prices, provider=provider)
        if money is None and self.budget.limits_money and self.budget.unknown_price == "refuse":
            raise PriceUnknown(name)
        return given + said, money or Decimal(0)

    def _settle(self, aside: SetAside, given: int, said: int, cost: Decimal | None) -> None:
        """Settle a call in a task of its own: whoever made it may be cancelled."""
        settling = asyncio.ensure_future(
            self._journal.settle(aside.call, input_tokens=given, output_tokens=said, cost=cost)
        )
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)


async def record_start(
    journal: Journal,
    spending: Spending | None,
    call_id: str,
    tool: str,
    *facts: NewFact,
    grant: str | None = None,
) -> None:
    """Record that a call of a tool starts, if a budget allows it, and a grant where it needs one.

    Raises:
        BudgetExhausted, NoGrant: it does not.
    """
    if spending is not None:
        await spending.before_tool(call_id, tool, *facts, grant=grant)
    elif grant is not None:
        uncounted = {"kind": "tool", "call_id": call_id, "grant": grant, "limits": []}
        await journal.note(*facts, spend=uncounted)
    else:
        await journal.note(*facts)


def _chars_of(asked: ModelRequestContext) -> int:
    """Return how many characters a model is asked over: what was said, what it is told to do, and its tools."""
    offered = asked.model_request_parameters
    told = [part.content for part in offered.instruction_parts or ()]
    told += [
        part.content
        for message in asked.messages
        for part in message.parts
        if isinstance(part, SystemPromptPart)
    ]
    tools = [
        [tool.name, tool.description, tool.parameters_json_schema]
        for tool in (*offered.function_tools, *offered.output_tools)
    ]
    return sum(map(chars_of, asked.messages)) + sum(map(len, told)) + len(to_json(tools))


def _is_unmeasured(response: ModelResponse) -> bool:
    """Tell whether nobody knows what a response took: its provider has not said, or was cut off before it could."""
    usage = response.usage
    return bool(usage.unmeasured_requests) or usage.input_tokens + usage.output_tokens == 0
