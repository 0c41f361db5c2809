"""The app of the workers that a measurement kills: each has an agent of its own, so that a run finds its victim."""

import os
from typing import Final

from benchmarks.agents import agent, first_line
from threadhold import Hosted, Threadhold

VARIABLE: Final = "BENCH_VICTIMS"
VICTIMS_MAX: Final = 50


def victim(number: int) -> str:
    """Return the name of a victim's agent."""
    return f"victim{number}"


_names = os.environ.get(VARIABLE) or ",".join(victim(number) for number in range(VICTIMS_MAX))
app = Threadhold(agents={name: Hosted(agent, deps=first_line) for name in _names.split(",")})
