"""How much one principal may ask for: counted per principal, bounded in memory, with the time to come again."""

import pytest

from threadhold.adapters.http.buckets import Buckets
from threadhold.adapters.http.errors import RateLimited, refusal
from threadhold.adapters.http.quotas import Allowance, Quotas
from threadhold.runner.records import Principal

ADA = Principal(id="ada", workspace="acme")
BOB = Principal(id="bob", workspace="acme")
NAMESAKE = Principal(id="ada", workspace="elsewhere")


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def taken(buckets: Buckets, who: str, *, now: float) -> int:
    """Return how many somebody gets at once."""
    count = 0
    while buckets.take(who, now=now) == 0:
        count += 1
    return count


def test_a_minutes_worth_may_come_at_once_and_then_one_by_one() -> None:
    buckets = Buckets(per_minute=30)
    assert taken(buckets, "ada", now=100.0) == 30
    assert buckets.take("ada", now=101.0) == pytest.approx(1.0)
    assert buckets.take("ada", now=102.0) == 0
    assert taken(buckets, "ada", now=112.0) == 5
    assert taken(buckets, "ada", now=10_000.0) == 30


def test_a_refusal_costs_nothing() -> None:
    buckets = Buckets(per_minute=60)
    taken(buckets, "ada", now=0.0)
    for _ in range(100):
        buckets.take("ada", now=0.5)
    assert buckets.take("ada", now=1.0) == 0


def test_whoever_was_quiet_for_longest_is_forgotten_first() -> None:
    buckets = Buckets(per_minute=1, remembered_max=2)
    for who in ("ada", "bob", "ada", "eve"):
        buckets.take(who, now=0.0)
    assert list(buckets.kept) == ["ada", "eve"]
    assert buckets.take("ada", now=0.0) > 0
    assert buckets.take("bob", now=0.0) == 0


def test_messages_are_counted_per_principal() -> None:
    clock = Clock()
    quotas = Quotas(Allowance(messages_per_minute=2), clock=clock)
    for by in (ADA, ADA, BOB, NAMESAKE):
        quotas.message(by)
    with pytest.raises(RateLimited) as refused:
        quotas.message(ADA)
    told = refusal(refused.value)
    assert (told.status, told.code, told.retryable, told.retry_after) == (429, "rate_limited", True, 30)
    assert told.data == {"limit": 2, "retry_after": 30}
    clock.now = 30.0
    quotas.message(ADA)


@pytest.mark.parametrize("what", ["watch", "socket"])
def test_what_is_open_is_counted_until_it_is_closed(what: str) -> None:
    quotas = Quotas(Allowance(watches=1, sockets=1))
    opened = getattr(quotas, what)
    with opened(ADA), opened(BOB), opened(NAMESAKE):
        with pytest.raises(RateLimited), opened(ADA):
            raise AssertionError("it was opened")
        with pytest.raises(RateLimited), opened(ADA):
            raise AssertionError("a refusal closed another one")
    with pytest.raises(KeyError), opened(ADA):
        raise KeyError
    with opened(ADA):
        pass
    assert not quotas._watches
    assert not quotas._sockets


def test_nothing_is_bounded_that_nobody_bounded() -> None:
    quotas = Quotas(Allowance())
    for _ in range(1000):
        quotas.message(ADA)
    with quotas.watch(ADA), quotas.watch(ADA), quotas.socket(ADA), quotas.socket(ADA):
        pass
