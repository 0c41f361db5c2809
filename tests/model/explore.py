"""Visits every state that can be reached, breadth first, and checks each of them and each step."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.model.invariants import check_state, check_step, settled
from tests.model.moves import Move, answers, messages, misfortunes, stops, time_passes
from tests.model.state import Broken
from tests.model.workers import moves_of
from tests.model.world import Setting, World, beginning, canonical


class Result(NamedTuple):
    """What an exploration found. `broken` is empty when all is well; `steps` lead to what is broken."""

    broken: str
    steps: tuple[str, ...]
    states: int
    transitions: int
    depth: int
    seconds: float
    taken: frozenset[str]  # every step that was possible somewhere, by its label


def moves(s: Setting, w: World) -> Iterator[Move]:
    """Yield everything that can happen next."""
    yield from messages(s, w)
    yield from stops(s, w)
    yield from answers(s, w)
    yield from time_passes(s, w)
    yield from misfortunes(w)
    for i in range(len(w.workers)):
        # Of workers that are in the same state one is enough.
        if i == 0 or w.workers[i] != w.workers[i - 1]:
            yield from moves_of(s, w, i)


class Exploration:
    """The states that were seen, how each was reached, and the fair steps between them."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.worlds: list[World] = []
        self.number: dict[World, int] = {}
        self.parent = array("l")
        self.label: list[str] = []
        self.fair_from = array("l")
        self.fair_to = array("l")
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
        return number

    def expand(self, number: int) -> None:
        """Take every step from a state."""
        s = self.setting
        world = self.worlds[number]
        for move in moves(s, world):
            self.transitions += 1
            self.taken.add(move.label)
            try:
                if move.world.db is not world.db:
                    check_step(world, move.world)
                check_state(move.world, s.bound.limits)
            except Broken as broken:
                raise Broken(str(broken), move.label) from None
            to = self.meet(canonical(move.world), number, move.label)
            if move.fair:
                self.fair_from.append(number)
                self.fair_to.append(to)

    def path(self, number: int) -> tuple[str, ...]:
        """Return the steps that lead to a state."""
        steps = []
        while number > 0:
            steps.append(self.label[number])
            number = self.parent[number]
        return tuple(reversed(steps))

    def stuck(self) -> int | None:
        """Return a state from which fair steps alone never lead to one where nothing is left to do."""
        count = len(self.worlds)
        first = array("l", [0]) * (count + 1)
        for to in self.fair_to:
            first[to + 1] += 1
        for i in range(count):
            first[i + 1] += first[i]
        place = array("l", first)
        into = array("l", [0]) * len(self.fair_to)
        for n in range(len(self.fair_to)):
            to = self.fair_to[n]
            into[place[to]] = self.fair_from[n]
            place[to] += 1
        fine = bytearray(count)
        work = [i for i, world in enumerate(self.worlds) if settled(world)]
        for i in work:
            fine[i] = 1
        while work:
            to = work.pop()
            for n in range(first[to], first[to + 1]):
                if not fine[into[n]]:
                    fine[into[n]] = 1
                    work.append(into[n])
        place_of_first = fine.find(0)
        return None if place_of_first < 0 else place_of_first

    def result(self, broken: str = "", steps: tuple[str, ...] = ()) -> Result:
        """Return what was found."""
        depth = len(self.path(len(self.worlds) - 1))
        seconds = time.monotonic() - self.started
        taken = frozenset(self.taken)
        return Result(broken, steps, len(self.worlds), self.transitions, depth, seconds, taken)


def explore(
    setting: Setting,
    *,
    states_max: int = 50_000_000,
    say: Callable[[str], None] | None = None,
    every: int = 100_000,
) -> Result:
    """Visit all states within a bound; stop at the first that is broken, which is one of the nearest.

    Raises:
        RuntimeError: if there are more than `states_max`.
    """
    e = Exploration(setting)
    e.meet(canonical(beginning(setting.bound)), -1, "")
    number = 0
    while number < len(e.worlds):
        try:
            e.expand(number)
        except Broken as broken:
            last = broken.args[1:] or ("(in that state)",)
            return e.result(str(broken.args[0]), (*e.path(number), *last))
        number += 1
        if len(e.worlds) > states_max:
            raise RuntimeError(f"more than {states_max} states")
        if say is not None and number % every == 0:
            rate = len(e.worlds) / (time.monotonic() - e.started)
            say(f"  {number:,} of {len(e.worlds):,} states, {rate:,.0f} per second")
    stuck = e.stuck()
    if stuck is None:
        return e.result()
    return e.result("everything settles: no fair continuation leads to rest", e.path(stuck))
