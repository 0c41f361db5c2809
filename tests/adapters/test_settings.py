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
        ("LIVE_FRAMES", "10"),
        ("LIVE_TTL", "0.5"),
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
        ("LIVE_REDIS_URLS", "redis://localhost,http://:s3cret@localhost"),
    ],
)
def test_urls_are_checked_and_never_shown(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"THREADHOLD_{name}", value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "s3cret" not in str(refused.value)
    assert refused.value.errors()[0]["loc"] == (name.lower(),)


def test_servers_for_live_frames_are_listed_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().live_nodes == ()
    monkeypatch.setenv("THREADHOLD_LIVE_REDIS_URLS", "redis://a, redis://b:1/2,")
    assert Settings().live_nodes == ("redis://a", "redis://b:1/2")


@pytest.mark.parametrize(
    "origin",
    ["https://chat.example.com", "https://chat.example.com:8443", "http://[::1]:3000", "tauri://localhost"],
)
def test_pages_that_may_call_are_listed_with_commas(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    assert Settings().allowed_origins == frozenset()
    monkeypatch.setenv("THREADHOLD_ORIGINS", f"{origin}, https://other.example,")
    assert Settings().allowed_origins == {origin, "https://other.example"}


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "https://*.example.com", "https://Chat.example.com", "https://chat.example.com/", "chat.example.com",
     "https://chat.example.com:443", "http://chat.example.com:80", "https://me:s3cret@chat.example.com",
     "https://a.example;https://b.example", "https://a.example https://b.example"],
)  # fmt: skip
def test_what_no_browser_sends_as_an_origin_is_refused(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    monkeypatch.setenv("THREADHOLD_ORIGINS", f"https://other.example,{origin}")
    with pytest.raises(ValidationError, match="number 2 is not an origin") as refused:
        Settings()
    assert "s3cret" not in str(refused.value)
