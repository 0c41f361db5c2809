"""An app whose tool does with its credential all that it should not."""

import logging
import sys
from dataclasses import dataclass

import structlog
from pydantic_ai import Agent, CustomEvent, RunContext

from tests.support.scripted import scripted_model
from threadhold import Binding, Hosted, Rejection, Threadhold, credential

APP = f"{__file__}:app"
HUSH = "hush-4711-hush"
# Put together here, so that whoever looks for keys in this repository finds none.
KEY = "ghp_" + "Ab3d" * 9

agent: Agent[None, str] = Agent(scripted_model(), retries=3)


@dataclass(kw_only=True)
class GossipEvent(CustomEvent):
    """A piece of what a tool reads."""

    text: str


@agent.tool
async def gossip(ctx: RunContext[None], how: str) -> object:
    """Tell the secrets."""
    assert credential() == HUSH
    told = f"{HUSH} and {KEY}"
    for place in range(0, len(told), 5):
        await ctx.emit(GossipEvent(text=told[place : place + 5]))
        sys.stdout.write(told[place : place + 5])
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stderr.write(f"{told}\n")
    logging.getLogger("gossip").warning("told %s", told)
    structlog.get_logger("gossip").error("told", what={"token": "abc", "all": [told]}, key=KEY)
    match how:
        case "return":
            return {"told": told, KEY: [told]}
        case "retry":
            raise Rejection(f"not {told}")
    raise LookupError(f"no {told}") from OSError(told)


app = Threadhold(
    agents={
        "scripted": Hosted(
            agent,
            tools={"gossip": Binding(credentials="house")},
            credentials={"house": lambda identity: HUSH},
        )
    }
)
