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
        ("PREFIX", "a b"),
        ("CAPACITY", "0"),
        ("POOL_SIZE", "1"),
    ],
)
def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"THREADHOLD_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize("name", ["DATABASE_URL", "STATE", "URL"])
def test_empty_means_the_default(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"THREADHOLD_{name}", "")
    assert Settings() == Settings.model_construct()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "nonsense"),
        ("DATABASE_URL", "mysql://me:s3cret@localhost/x"),
        ("DATABASE_URL", "postgresql://me:s3cret@localhost:notaport/x"),
        ("REDIS_URL", "http://localhost"),
        ("REDIS_URL", "redis://:s3cret@localhost:99999"),
    ],
)
def test_urls_are_checked_and_never_shown(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"THREADHOLD_{name}", value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "s3cret" not in str(refused.value)
    assert refused.value.errors()[0]["loc"] == (name.lower(),)
