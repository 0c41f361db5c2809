"""Which fault comes when, on whom and for how long: drawn from a seed, so that a failing seed replays."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.world import REPLICAS, WORKERS

# Each deck holds every card, so that every kind of fault comes once before any comes again. The second value: on whom.
Card = tuple[str, str]
CARDS: Final[Sequence[Card]] = (
    ("kill", "worker"),
    ("kill", "worker"),
    ("freeze beyond the ttl", "worker"),
    ("freeze beyond the ttl", "worker"),
    ("freeze shortly", "worker"),
    ("tell to end", "worker"),
    ("kill the keeper", "worker"),
    ("kill", "api"),
    ("freeze shortly", "api"),
    ("tell to end", "api"),
    ("restart", "postgres"),
    ("kill", "postgres"),
    ("freeze", "postgres"),
    ("fail over", "postgres"),
    ("slow commits", "postgres"),
    ("slow commits", "postgres"),
    ("slow commits", "postgres"),
    ("jump forward", "clock"),
    ("jump back", "clock"),
    ("restart", "redis"),
    ("kill", "redis"),
    ("freeze", "redis"),
    ("flush", "redis"),
    ("drop subscribers", "redis"),
    ("drop clients", "redis"),
    ("cut", "link"),
    ("delay", "link"),
    ("half open", "link"),
    ("refuse", "link"),
    ("hole to server", "worker -> postgres"),
    ("hole to server", "link"),
    ("hole to client", "worker -> postgres"),
    ("hole to client", "link"),
    ("hold", "worker -> postgres"),
    ("hold", "worker -> postgres"),
    ("hold", "worker -> postgres"),
)
GAP_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen `at` seconds after the start, for `seconds` where it lasts."""

    at: float
    kind: str
    target: str
    seconds: float


def schedule(seed: int, *, seconds: float, ttl: float, more: Sequence[Card] = ()) -> list[Fault]:
    """Return the faults of a world.

    Args:
        seed: of the dice.
        seconds: how long the world lasts.
        ttl: how long a claim lasts, in seconds.
        more: cards that are put into each deck besides its own.
    """
    dice = random.Random(f"faults {seed}")
    faults: list[Fault] = []
    deck: list[Card] = []
    at = dice.uniform(0.5, 1.5)
    while at < seconds:
        if not deck:
            deck = dice.sample([*CARDS, *more], len(CARDS) + len(more))
        kind, whom = deck.pop()
        faults.append(Fault(round(at, 2), kind, _target(dice, whom), round(_length(dice, kind, ttl), 2)))
        at += dice.expovariate(1 / GAP_S)
    return faults


def _target(dice: random.Random, whom: str) -> str:
    match whom:
        case "worker":
            return dice.choice(WORKERS)
        case "api":
            return dice.choice(REPLICAS)
        case "worker -> postgres":
            return f"{dice.choice(WORKERS)} -> postgres"
        case "link":
            return f"{dice.choice(WORKERS + REPLICAS)} -> {dice.choice(('postgres', 'redis'))}"
        case _:
            return whom


def _length(dice: random.Random, kind: str, ttl: float) -> float:
    match kind:
        case "freeze beyond the ttl":
            return ttl + dice.uniform(1.0, 4.0)
        case "hold":
            # What was held arrives when the claim has lapsed.
            return ttl + dice.uniform(0.5, 2.5)
        case "slow commits":
            return dice.uniform(0.15, 0.5)
        case "freeze shortly" | "delay":
            return dice.uniform(0.2, 0.4 * ttl)
        case "jump forward" | "jump back":
            return dice.uniform(1.0, 4.0 * ttl)
        case _:
            return dice.choice((dice.uniform(0.2, 0.5 * ttl), ttl + dice.uniform(0.3, 3.0)))
