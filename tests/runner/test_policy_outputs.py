"""Output functions are judged as tools are, by the names of their arguments."""

import json
from collections.abc import AsyncIterator

from pydantic import BaseModel
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.runner.conftest import House
from threadhold import Policy, Rule
from threadhold.runner.machine import RunStatus


class Order(BaseModel):
    """What is paid."""

    account: str
    euros: float


def pays(**first: object) -> FunctionModel:
    """Return a model that pays to somebody else first, and to us once that is denied."""

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[dict[int, DeltaToolCall]]:
        account = "theirs" if len(messages) == 1 else "ours"
        args = json.dumps({"account": account, **first})
        yield {0: DeltaToolCall(name="wire", json_args=args, tool_call_id="w")}

    return FunctionModel(stream_function=stream)


POLICY = Policy([Rule("not theirs", "deny", tools=["wire"], args={"account": "theirs"})])


async def test_one_that_has_one_argument(house: House) -> None:
    ran: list[str] = []

    def wire(account: str) -> str:
        """Send money."""
        ran.append(account)
        return "sent"

    agent = Agent(pays(), output_type=ToolOutput(wire, name="wire"))
    async with house.bench(agent=agent, policy=POLICY) as bench:
        run = await bench.run(await bench.send("hello"))
    assert (run.status, run.output, ran) == (RunStatus.COMPLETED, "sent", ["ours"])


async def test_one_whose_argument_is_a_model(house: House) -> None:
    ran: list[Order] = []

    def wire(order: Order) -> str:
        """Send money."""
        ran.append(order)
        return "sent"

    agent = Agent(pays(euros=1.5), output_type=ToolOutput(wire, name="wire"))
    async with house.bench(agent=agent, policy=POLICY) as bench:
        run = await bench.run(await bench.send("hello"))
    assert (run.status, run.output, ran) == (RunStatus.COMPLETED, "sent", [Order(account="ours", euros=1.5)])


async def test_one_that_has_several(house: House) -> None:
    ran: list[str] = []

    def wire(account: str, euros: float) -> str:
        """Send money."""
        ran.append(account)
        return f"sent {euros}"

    agent = Agent(pays(euros=1.5), output_type=ToolOutput(wire, name="wire"))
    async with house.bench(agent=agent, policy=POLICY) as bench:
        run = await bench.run(await bench.send("hello"))
    assert (run.status, run.output, ran) == (RunStatus.COMPLETED, "sent 1.5", ["ours"])
