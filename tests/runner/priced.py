"""An agent whose model has a price, with tools that wait, ask people, and ask other agents."""

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from tests.support import scripted
from tests.support.scripted import opened
from threadhold import delegate

GPT = "gpt-5"
"""A model whose price is known."""


def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call its own tool once, then answer; as an agent that is delegated to."""
    if any(isinstance(part, ToolCallPart) for message in messages for part in message.parts):
        return ModelResponse(parts=[TextPart("found")], usage=RequestUsage(input_tokens=7, output_tokens=3))
    call = ToolCallPart("look", {}, tool_call_id="c")
    return ModelResponse(parts=[call], usage=RequestUsage(input_tokens=7, output_tokens=3))


expert = Agent(FunctionModel(answers, model_name="expert"), name="expert")


@expert.tool_plain
def look() -> str:
    """Look it up."""
    return "there"


agent: Agent[None, str] = Agent(
    FunctionModel(stream_function=scripted.stream, model_name=GPT),
    model_settings=ModelSettings(max_tokens=100),
)


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@agent.tool_plain
async def wait(gate: str) -> str:
    """Wait until a file is there."""
    await opened(gate)
    return "open"


@agent.tool_plain(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@agent.tool_plain
async def ask_expert() -> str:
    """Ask somebody who knows."""
    return (await delegate(expert, "well?")).output


@agent.tool
async def ask_deep(ctx: RunContext[None]) -> str:
    """Ask an agent that asks an agent, and so on."""

    async def deeper(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(part.part_kind == "tool-return" for message in messages for part in message.parts):
            return ModelResponse(parts=[TextPart("deep")])
        return ModelResponse(parts=[ToolCallPart("down", {}, tool_call_id="d")])

    inner = Agent(FunctionModel(deeper), name="deeper")

    @inner.tool_plain
    async def down() -> str:
        """Ask one level below."""
        return (await delegate(inner, "further")).output

    return (await delegate(inner, "down")).output
