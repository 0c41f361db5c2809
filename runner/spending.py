"""What one attempt spends: looked at and set aside before each call of a model or a tool, settled after a model's."""

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import uuid4

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, SystemPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from threadhold.runner.budget import (
    Budget,
    BudgetExhausted,
    BudgetHeld,
    Place,
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
    tokens: int
    money: Decimal


class Spending:
    """Keeps one attempt within its budget.

    Args:
        budget: the limits.
        counted: where else what is spent counts, for other budgets.
        journal: where what is spent is recorded.
        on_timeout: called with the limit once time is up.
        clock: seconds, for how long to wait for calls of others.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        counted: Collection[Place] = (),
        journal: Journal,
        on_timeout: Callable[[BudgetExhausted], None],
        clock: Callable[[], float],
    ) -> None:
        self.budget = budget
        self._limits = budget.limits(counted)
        self._journal = journal
        self._on_timeout = on_timeout
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._uncounted: SetAside | None = None
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def start(self) -> dict[str, Any]:
        """What the first record of an attempt says, so that its time is counted from then on."""
        return {"kind": "start", "limits": self._limits}

    def started(self, limits: Sequence[dict[str, Any]]) -> None:
        """Mind the time, as it stands at the start."""
        self._mind_time(limits)

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
        tokens, money = self._estimate(asked)
        aside = SetAside(call=str(uuid4()), model=asked.model.model_name, tokens=tokens, money=money)
        if depth == 0:
            self._uncounted = None
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

    def after_model(
        self, asides: Sequence[SetAside], asked: ModelRequestContext, *, delegated: bool = False
    ) -> None:
        """Settle a call by what its provider has billed; to be called as it ends, by an error or without.

        Args:
            asides: what was set aside for it; more than once where something has asked the model again by itself.
            asked: the call, which knows what came of it.
            delegated: whether another agent than the run's own has made it.
        """
        for unused in asides[:-1]:
            self.drop(unused)
        if not asides:
            return
        aside, error = asides[-1], sys.exception()
        billed = _billed(asked)
        if billed and all(map(_is_measured, asked._usage_responses)):
            self._settle_as(aside, billed, provider=asked.model.system)
        elif _is_refusal(error):
            self.drop(aside)
        elif error is None:
            # Its provider does not count: it came to what was set aside, as far as anybody will ever know.
            self._settle(aside, aside.tokens, 0, aside.money)
        elif not delegated:
            self._uncounted = aside

    def _settle_as(
        self, aside: SetAside, billed: Sequence[tuple[str, RequestUsage]], *, provider: str
    ) -> None:
        costs = [
            cost_of(usage, names=(aside.model, name), prices=self.budget.prices, provider=provider)
            for name, usage in billed
        ]
        known = [cost for cost in costs if cost is not None]
        self._settle(
            aside,
            sum(usage.input_tokens for _, usage in billed),
            sum(usage.output_tokens for _, usage in billed),
            sum(known, Decimal(0)) if len(known) == len(costs) else None,
        )

    def ended_by(self, error: BaseException | None) -> None:
        """Give back what was set aside for the agent's last call, if its provider refused it: it does not bill that.

        Of any other end without a count nobody can tell.

        Args:
            error: by which the agent has ended; None if by none.
        """
        if self._uncounted is not None and _is_refusal(error):
            self.drop(self._uncounted)
        self._uncounted = None

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
                limits = await self._journal.note(*facts, spend=spend | {"limits": self._limits})
            except BudgetHeld as held:
                if self._clock() > end:
                    reached = [limit for limit in held.limits if limit["held"]]
                    raise await self._exhausted(BudgetExhausted(reached, held.limits), told) from None
                await asyncio.sleep(pause)
                pause = min(pause * 2, HELD_PAUSE_S_MAX)
            except BudgetExhausted as exhausted:
                raise await self._exhausted(exhausted, told) from None
            else:
                # A record that was repeated says nothing of limits; those of the first time still hold.
                if limits:
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
        given = estimated_tokens(_bytes_of(asked), len(asked.messages))
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


def _bytes_of(asked: ModelRequestContext) -> int:
    """Return over how many bytes a model is asked: what was said, what it is told to do, and its tools."""
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
    said = sum(chars_of(message, _size) for message in asked.messages)
    return said + sum(map(_size, told)) + len(to_json(tools))


def _size(text: str) -> int:
    """Return how many bytes a text has: a character that is none of English takes more tokens, too."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _billed(asked: ModelRequestContext) -> list[tuple[str, RequestUsage]]:
    """Return what providers have billed for a call, models that others were asked instead of among them."""
    responses, attempts = asked._usage_responses, list(asked._usage_attempts)
    attempts += [attempt for response in responses for attempt in response.failed_attempts or ()]
    billed = [(response.model_name or "", response.usage) for response in responses]
    return billed + [(each.model_name, each.usage) for each in attempts if each.usage is not None]


def _is_measured(response: ModelResponse) -> bool:
    """Tell whether anybody knows what a response took: its provider may not say, or was cut off before it could."""
    usage = response.usage
    return not usage.unmeasured_requests and usage.input_tokens + usage.output_tokens > 0


def _is_refusal(error: BaseException | None) -> bool:
    """Tell whether the provider has refused a call, or each one that was asked."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_refusal, error.exceptions))
    return isinstance(error, ModelHTTPError)
