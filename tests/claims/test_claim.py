"""How long a claim may be trusted, as arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadhold.claims import ClaimTimes


def test_trust_is_counted_from_before_the_request() -> None:
    assert ClaimTimes(ttl=15, margin=2).trusted_until(100) == 113


@pytest.mark.parametrize(("ttl", "renew_every", "margin"), [(15, 0, 2), (15, 13, 2), (15, 20, 2), (2, 1, 2)])
def test_times_that_lose_claims_are_refused(ttl: float, renew_every: float, margin: float) -> None:
    with pytest.raises(ValueError, match="renew_every"):
        ClaimTimes(ttl=ttl, renew_every=renew_every, margin=margin)


@given(began=st.floats(0, 1e6), flight=st.floats(0, 100), ttl=st.floats(1, 100), share=st.floats(0.05, 0.5))
def test_trust_ends_before_the_database_lets_go(
    began: float, flight: float, ttl: float, share: float
) -> None:
    times = ClaimTimes(ttl=ttl, renew_every=ttl * 0.1, margin=ttl * share)
    executed_at = began + flight
    assert times.trusted_until(began) <= executed_at + ttl - times.margin


def test_several_renewals_fit_into_one_ttl() -> None:
    times = ClaimTimes()
    assert times.attempt_timeout + times.retry_after < times.ttl / 3
