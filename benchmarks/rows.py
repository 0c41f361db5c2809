"""Rows of the table: samples made into a number, its floor, and whether the goal is met. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["ms", "us", "/s", "KB", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number. Latencies are in milliseconds, rates per second, costs in microseconds of processor time.

    `p50` of what is not a latency is the number itself; it has no other percentiles. `ratio` says how many times the
    floor it is (for a rate, how many times the floor does as much); what nobody else has to pay has no floor. `met` is
    None where no goal is set.
    """

    name: str
    what: str
    unit: Unit
    p50: float
    p95: float | None
    p99: float | None
    floor_p50: float | None
    ratio: float | None
    goal: str
    met: bool | None
    n: int


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that at least `percent` of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def latency_row(
    name: str,
    what: str,
    samples: Sequence[float],
    floor: Sequence[float],
    *,
    goal_ms: float | None = None,
    ratio_max: float | None = None,
    window_ms: float = 0.0,
    p99_max_ms: float | None = None,
) -> Row:
    """Return the row of a latency.

    Args:
        name, what: what was measured.
        samples, floor: seconds.
        goal_ms: what the p50 has to stay under, `window_ms` not counted.
        ratio_max: how many times the floor the p50 may be, `window_ms` not counted.
        window_ms: milliseconds of the measured path that are a wait by design.
        p99_max_ms: what the p99 has to stay under, all included; goes without the other two.
    """
    p50, p95, p99 = (percentile(samples, percent) * 1000 for percent in (50, 95, 99))
    floor_p50 = percentile(floor, 50) * 1000
    ratio = (p50 - window_ms) / floor_p50
    met = None
    if goal_ms is not None:
        met = p50 - window_ms < goal_ms and (ratio_max is None or ratio <= ratio_max)
    if p99_max_ms is not None:
        met = p99 < p99_max_ms
    window = f"{window_ms:g} + " if window_ms else ""
    parts = [f"< {window}{goal_ms:g} ms"] if goal_ms is not None else []
    parts += [f"<= {ratio_max:g}x"] if ratio_max is not None else []
    parts += [f"p99 < {p99_max_ms:g} ms"] if p99_max_ms is not None else []
    return Row(
        name=name,
        what=what,
        unit="ms",
        p50=p50,
        p95=p95,
        p99=p99,
        floor_p50=floor_p50,
        ratio=ratio,
        goal=", ".join(parts) or "-",
        met=met,
        n=len(samples),
    )


def rate_row(name: str, what: str, rate: float, floor: float, *, goal: float | None = None, n: int) -> Row:
    """Return the row of a rate, per second."""
    return Row(
        name=name,
        what=what,
        unit="/s",
        p50=rate,
        p95=None,
        p99=None,
        floor_p50=floor,
        ratio=floor / rate,
        goal="-" if goal is None else f">= {goal:g}/s",
        met=None if goal is None else rate >= goal,
        n=n,
    )


def cost_row(
    name: str,
    what: str,
    cost: float,
    floor: float | None = None,
    *,
    unit: Unit,
    goal: float | None = None,
    ratio_max: float | None = None,
    n: int,
) -> Row:
    """Return the row of something that is used up; the most that it may be is `goal`, or so many times its floor."""
    ratio = cost / floor if floor else None
    met = None if goal is None else cost <= goal
    if ratio_max is not None and ratio is not None:
        met = ratio <= ratio_max
    limits = [f"<= {goal:g}"] if goal is not None else []
    limits += [f"<= {ratio_max:g}x"] if ratio_max is not None else []
    return Row(
        name=name,
        what=what,
        unit=unit,
        p50=cost,
        p95=None,
        p99=None,
        floor_p50=floor,
        ratio=ratio,
        goal=", ".join(limits) or "-",
        met=met,
        n=n,
    )
