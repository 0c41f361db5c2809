"""A small agent that needs no key: `threadhold dev examples/demo.py:app --chat`, or just `make demo`."""

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage

from threadhold import Threadhold
from threadhold.adapters.localmodel import local_model

MESSAGES_MAX = 8


def recent(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Keep what a small model can read; the thread's own history stays whole."""
    return messages[-MESSAGES_MAX:]


agent = Agent(
    local_model(),
    instructions="You are a helpful assistant who speaks English.",
    capabilities=[ProcessHistory(recent)],
)

app = Threadhold(agents={"demo": agent})
