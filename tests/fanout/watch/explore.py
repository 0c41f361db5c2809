"""Visits every state that can be reached, breadth first, and checks each of them, each step, and that all settles."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

from tests.fanout.watch.guards import ALL, Guards
from tests.fanout.watch.judge import Broken, check_state, settled
from tests.fanout.watch.moves import moves
from tests.fanout.watch.rig import Rig
from tests.fanout.watch.world import Bound, World, beginning, canonical


class Result(NamedTuple):
    """What an exploration found. `broken` is empty when all is well; `steps` lead to what is broken."""

    broken: str
    steps: tuple[str, ...]
    states: int
    transitions: int
    seconds: float
    taken: frozenset[str]  # every step that was possible somewhere, by its label


class Exploration:
    """The states that were seen, how each was reached, and the fair steps between them."""

    def __init__(self, bound: Bound, guards: Guards) -> None:
        self.bound = bound
        self.rig = Rig(bound, guards)
        self.worlds: list[World] = []
        self.number: dict[World, int] = {}
        self.parent = array("l")
        self.label: list[str] = []
        self.into: list[list[int]] = []
        self.transitions = 0
        self.taken: set[str] = set()
        self.started = time.monotonic()

    def meet(self, world: World, parent: int, label: str) -> int:
        """Return the number of a state, a new one if it was not seen before."""
        number = self.number.setdefault(world, len(self.worlds))
        if number == len(self.worlds):
            self.worlds.append(world)
            self.parent.append(parent)
            self.label.append(label)
            self.into.append([])
        return number

    def expand(self, number: int) -> None:
        """Take every step from a state."""
        world = self.worlds[number]
        check_state(world)
        for move in moves(self.rig, world):
            self.transitions += 1
            self.taken.add(move.label)
            to = self.meet(canonical(move.world), number, move.label)
            if move.fair and to != number:
                self.into[to].append(number)

    def path(self, number: int) -> tuple[str, ...]:
        """Return the steps that lead to a state."""
        steps = []
        while number > 0:
            steps.append(self.label[number])
            number = self.parent[number]
        return tuple(reversed(steps))

    def stuck(self) -> int:
        """Return a state from which fair steps alone never lead to one where every watcher has all, or -1."""
        until_idle = self.bound.until_idle
        fine = bytearray(settled(world, until_idle=until_idle) for world in self.worlds)
        work = [i for i, is_fine in enumerate(fine) if is_fine]
        while work:
            for came_from in self.into[work.pop()]:
                if not fine[came_from]:
                    fine[came_from] = 1
                    work.append(came_from)
        return fine.find(0)

    def result(self, broken: str = "", steps: tuple[str, ...] = ()) -> Result:
        """Return what was found."""
        seconds = time.monotonic() - self.started
        taken = frozenset(self.taken)
        return Result(broken, steps, len(self.worlds), self.transitions, seconds, taken)


@contextmanager
def pages(bound: Bound) -> Iterator[None]:
    """Let the product read in pages as small as the bound says, and hold as little."""
    with (
        mock.patch("threadhold.fanout.backlog.FACTS_PAGE", bound.facts_page),
        mock.patch("threadhold.fanout.backlog._LIVE_PAGE", bound.live_page),
        mock.patch("threadhold.fanout.topic._HELD_MAX", bound.held),
    ):
        yield


def explore(
    bound: Bound,
    guards: Guards = ALL,
    *,
    states_max: int = 5_000_000,
    say: Callable[[str], None] | None = None,
    every: int = 50_000,
) -> Result:
    """Visit all states within a bound; stop at the first that is broken, which is one of the nearest.

    Raises:
        RuntimeError: if there are more than `states_max`.
    """
    with pages(bound):
        e = Exploration(bound, guards)
        e.meet(canonical(beginning(bound)), -1, "")
        number = 0
        while number < len(e.worlds):
            try:
                e.expand(number)
            except Broken as broken:
                return e.result(str(broken), e.path(number))
            number += 1
            if len(e.worlds) > states_max:
                raise RuntimeError(f"more than {states_max} states")
            if say is not None and number % every == 0:
                say(f"  {number:,} of {len(e.worlds):,} states")
        stuck = e.stuck()
        if stuck < 0:
            return e.result()
        return e.result("all settles: a watcher never gets what there is", e.path(stuck))
