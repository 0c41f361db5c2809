"""Which way of telling who asks the settings name, and which of them are refused."""

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.identity.issuer import SECRET, secret_token
from threadhold.adapters.identity.errors import BadTokensFile, TokenRefused
from threadhold.adapters.identity.verifying import TOKEN_CHARS_MAX, verifier_of
from threadhold.adapters.settings import Settings

TOKEN = "0123456789abcdef" * 3


def test_without_any_nobody_can_be_told_apart() -> None:
    assert verifier_of(Settings()) is None


async def test_a_file_and_a_secret_may_be_used_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    file.write_text(f'[[token]]\nname = "ci"\nsha256 = "{digest}"\nworkspace = "acme"\n')
    file.chmod(0o600)
    monkeypatch.setenv("THREADHOLD_TOKENS_FILE", str(file))
    monkeypatch.setenv("THREADHOLD_JWT_SECRET", SECRET)
    verifier = verifier_of(Settings())
    assert verifier is not None
    assert (await verifier.principal(TOKEN)).id == "ci"
    assert (await verifier.principal(secret_token(aud=None))).id == "ada"
    for token in ("", "x", TOKEN + "x", "x" * (TOKEN_CHARS_MAX + 1), "\u2603" * 40):
        with pytest.raises(TokenRefused):
            await verifier.principal(token)


def test_a_file_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadTokensFile):
        verifier_of(Settings(tokens_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"JWT_SECRET": "short-s3cret"}, "32 bytes"),
        ({"JWT_JWKS_URL": "ftp://x"}, "URL"),
        ({"JWT_JWKS_URL": "http://login.example.com/keys", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, "https"),
        ({"JWT_JWKS_URL": "https://login.example.com/keys"}, "jwt_issuer"),
        ({"JWT_JWKS_URL": "https://login.example.com/keys", "JWT_ISSUER": "i"}, "jwt_audience"),
        (
            {
                "JWT_JWKS_URL": "https://x/keys",
                "JWT_ISSUER": "i",
                "JWT_AUDIENCE": "a",
                "JWT_SECRET": "s3cret" * 10,
            },
            "either",
        ),
    ],
    ids=range(6),
)
def test_settings_that_would_let_others_in_are_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], said: str
) -> None:
    for name, value in fields.items():
        monkeypatch.setenv(f"THREADHOLD_{name}", value)
    with pytest.raises(ValidationError, match=said) as refused:
        Settings()
    assert "s3cret" not in str(refused.value)


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADHOLD_JWT_SECRET", SECRET)
    settings = Settings()
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
