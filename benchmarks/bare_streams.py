"""What streaming itself costs: the same agents at once, run by pydantic-ai alone.

Usage: python -m benchmarks.bare_streams RUNS SCRIPT

Prints the processor seconds that all of them took together.
"""

import asyncio
import sys
import time

from benchmarks.agents import agent, first_line
from benchmarks.bare import BARE, streamed


async def main(runs: int, script: str) -> None:
    """Run the agents and print what they used."""
    await agent.run("deltas 2 0.01", deps=first_line(BARE), event_stream_handler=streamed)
    before = time.process_time()
    await asyncio.gather(
        *(agent.run(script, deps=first_line(BARE), event_stream_handler=streamed) for _ in range(runs))
    )
    print(time.process_time() - before)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
