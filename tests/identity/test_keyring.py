"""When keys are fetched again: pure, the time is passed in."""

import pytest

from threadhold.adapters.identity.keyring import FRESH_S, RETRY_S, STALE_S, Keyring, Step

NONE: Keyring[str] = Keyring(keys={})


def ring(*, fetched: float | None = 0.0, tried: float | None = 0.0) -> Keyring[str]:
    """Return a ring with one key."""
    keys = {} if fetched is None else {"a": "key-a"}
    return Keyring(keys=keys, fetched_at=fetched, tried_at=tried)


@pytest.mark.parametrize(
    ("kept", "kid", "now", "step"),
    [
        (NONE, "a", 0.0, "fetch"),
        (ring(fetched=None), "a", RETRY_S - 1, "unavailable"),
        (ring(fetched=None), "a", RETRY_S, "fetch"),
        (ring(), "a", FRESH_S - 1, "use"),
        (ring(), None, FRESH_S - 1, "use"),
        (ring(), "b", RETRY_S - 1, "unknown_key"),
        (ring(), "b", RETRY_S, "fetch"),
        (ring(), "a", FRESH_S, "use_and_fetch"),
        (ring(tried=FRESH_S), "a", FRESH_S + RETRY_S - 1, "use"),
        (ring(tried=FRESH_S), "a", FRESH_S + RETRY_S, "use_and_fetch"),
        (ring(tried=STALE_S - 1), "a", STALE_S - 1, "use"),
        (ring(tried=STALE_S - 1), "a", STALE_S, "unavailable"),
        (ring(), "a", STALE_S, "fetch"),
    ],
)
def test_the_step_follows_from_age_and_key(
    kept: Keyring[str], kid: str | None, now: float, step: Step
) -> None:
    assert kept.step(kid, now=now) == step


def test_a_token_without_a_key_id_means_the_only_key() -> None:
    assert ring().key(None) == "key-a"
    assert Keyring(keys={"a": 1, "b": 2}, fetched_at=0.0).key(None) is None
    assert NONE.key(None) is None
