"""What the agent itself costs: the same agent, run by pydantic-ai alone, without a runtime, servers or processes.

Usage: python -m benchmarks.bare RUNS CLIENTS SECONDS

Prints how many runs per second one process does.
"""

import asyncio
import sys
from collections.abc import AsyncIterable
from typing import Any

from benchmarks.agents import agent, first_line
from benchmarks.bounds import bounded
from benchmarks.stamps import now
from threadhold import Principal, RunIdentity

WHO = Principal(id="bench", workspace="default")
BARE = RunIdentity(principal=WHO, workspace="default", thread="bare", run="bare", attempt=1, fence=1)


async def main(runs: int, clients: int, seconds: float) -> None:
    """Run the agent and print runs per second."""
    await agent.run("noop", deps=first_line(BARE), event_stream_handler=streamed)
    left, done, began = iter(bounded(runs, seconds)), 0, now()

    async def client() -> None:
        nonlocal done
        for _ in left:
            await agent.run("noop", deps=first_line(BARE), event_stream_handler=streamed)
            done += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    print(done / (now() - began))


async def streamed(_: Any, events: AsyncIterable[Any]) -> None:
    """Take the events, so that the agent streams as it does under the runtime."""
    async for _event in events:
        continue


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
