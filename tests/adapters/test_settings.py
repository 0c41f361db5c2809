"""The settings: read from the environment, and nonsense is refused with the name of the field."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from threadhold.adapters.settings import Settings


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), ("0.5", 0.5), ("PT20S", 20.0)])
def test_durations_are_seconds_or_iso(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("THREADHOLD_GRACE", text)
    assert Settings().grace == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLAIM_TTL", "2"),
        ("RENEW_EVERY", "0"),
        ("TRUST_MARGIN", "-1"),
        ("SWEEP_EVERY", "0"),
        ("GRACE", "-1"),
        ("DB_SCHEMA", "x; drop schema y"),
        ("PREFIX", ""),
        ("CAPACITY", "0"),
        ("POOL_SIZE", "1"),
    ],
)
def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"THREADHOLD_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_empty_urls_are_no_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADHOLD_DATABASE_URL", "")
    assert Settings().database_url is None
