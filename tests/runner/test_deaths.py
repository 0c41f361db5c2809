"""Who is dead: absent for three seconds on end, as far as one observer has seen all of it."""

from dataclasses import dataclass, field

import pytest

from threadhold.runner.deaths import Absences, Deaths

HERE, GONE = {"a": True, "b": True}, {"a": True, "b": False}


@dataclass
class Sight:
    """Looks once a second, each taking a tenth."""

    absences: Absences = field(default_factory=Absences)
    time: float = 100.0

    def look(self, present: dict[str, bool], *, after: float = 1.0) -> list[str]:
        self.time += after
        return self.absences.see(present, began=self.time, ended=self.time + 0.1)


def test_holder_is_dead_after_three_seconds_of_absence_and_not_before() -> None:
    sight = Sight()
    assert [sight.look(GONE) for _ in range(4)] == [[], [], [], []]
    assert sight.look(GONE) == ["b"]
    assert sight.look(GONE) == ["b"]


def test_absence_is_counted_between_the_looks_not_within_them() -> None:
    absences = Absences()
    absences.see(GONE, began=100.0, ended=101.5)
    assert absences.see(GONE, began=103.0, ended=103.1) == []
    assert absences.see(GONE, began=104.4, ended=104.6) == []
    assert absences.see(GONE, began=104.5, ended=104.6) == ["b"]


def test_holder_that_is_seen_once_counts_anew() -> None:
    sight = Sight()
    for present in (GONE, GONE, GONE, HERE):
        assert sight.look(present) == []
    assert [sight.look(GONE) for _ in range(4)] == [[], [], [], []]


def test_holder_without_claims_is_forgotten() -> None:
    sight = Sight()
    for present in (GONE, GONE, GONE, {"a": True}):
        assert sight.look(present) == []
    assert sight.look(GONE) == []


def test_gap_between_two_looks_may_hide_anything() -> None:
    sight = Sight()
    for _ in range(3):
        sight.look(GONE)
    assert sight.look(GONE, after=3.0) == []
    assert [sight.look(GONE) for _ in range(4)] == [[], [], [], ["b"]]


@dataclass
class FakeHolders:
    """Answers what the test says, or fails."""

    answers: list[dict[str, bool] | Exception]
    closed: bool = False

    async def ask(self) -> dict[str, bool]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        self.closed = True


async def test_connection_that_is_cut_resets_the_counting() -> None:
    holders = FakeHolders([GONE, GONE, GONE, ConnectionError("cut"), GONE, GONE, GONE, GONE])
    clock = iter(float(half) / 2 for half in range(200, 300))
    deaths = Deaths(holders, clock=lambda: next(clock))
    seen = []
    for _ in range(8):
        try:
            seen.append(await deaths.look())
        except ConnectionError:
            seen.append(["cut"])
    assert seen == [[], [], [], ["cut"], [], [], [], []]


async def test_deaths_are_told_and_the_connection_is_closed() -> None:
    holders = FakeHolders([GONE] * 5)
    clock = iter(float(half) / 2 for half in range(200, 300))
    deaths = Deaths(holders, clock=lambda: next(clock))
    assert [await deaths.look() for _ in range(4)] == [[], [], [], []]
    assert await deaths.look() == ["b"]
    await deaths.aclose()
    assert holders.closed


async def test_failure_is_passed_on() -> None:
    with pytest.raises(ConnectionError):
        await Deaths(FakeHolders([ConnectionError("away")])).look()
