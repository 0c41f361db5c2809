"""The file with the tokens: what it may hold, who may write it, and that changes count."""

import hashlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.identity.issuer import Clock
from threadhold.adapters.identity.errors import BadTokensFile, TokenRefused
from threadhold.adapters.identity.listed import FILE_BYTES_MAX, LOOK_EVERY_S, TOKENS_MAX, TokensFile, parsed

ADA = "ada-" + "0123456789abcdef" * 3
BOB = "bob-" + "0123456789abcdef" * 3


def entry(token: str, name: str, *, workspace: str = "acme", more: str = "") -> str:
    """Return the lines of one token."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nworkspace = "{workspace}"\n{more}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with one token, as careful people make it."""
    path = tmp_path / "tokens.toml"
    path.write_text(entry(ADA, "ada", more='roles = ["operator"]'))
    path.chmod(0o644)
    return path


def rewrite(file: Path, text: str) -> None:
    """Write another content into a file."""
    file.write_text(text)


async def test_a_listed_token_is_somebodys_and_no_other_is(file: Path) -> None:
    tokens = TokensFile(str(file))
    found = await tokens.principal(ADA)
    assert (found.id, found.workspace, sorted(found.roles)) == ("ada", "acme", ["operator", "user"])
    for token in (BOB, "", ADA + "x", ADA[:-1], hashlib.sha256(ADA.encode()).hexdigest(), "\ud800" * 40):
        with pytest.raises(TokenRefused) as refused:
            await tokens.principal(token)
        assert refused.value.reason == "unknown"


async def test_a_short_token_is_refused_though_it_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("hunter2", "ada"))
    path.chmod(0o600)
    with pytest.raises(TokenRefused):
        await TokensFile(str(path)).principal("hunter2")


async def test_somebody_may_have_two_tokens(file: Path) -> None:
    rewrite(file, entry(ADA, "ada") + entry(BOB, "ada"))
    tokens = TokensFile(str(file))
    assert await tokens.principal(ADA) == await tokens.principal(BOB)


async def test_changes_are_taken_up(file: Path) -> None:
    clock = Clock()
    tokens = TokensFile(str(file), clock=clock)
    rewrite(file, entry(BOB, "bob"))
    clock.now += LOOK_EVERY_S
    assert (await tokens.principal(BOB)).id == "bob"
    with pytest.raises(TokenRefused):
        await tokens.principal(ADA)


async def test_a_change_that_cannot_be_read_leaves_what_was_and_is_said_once(file: Path) -> None:
    clock = Clock()
    tokens = TokensFile(str(file), clock=clock)
    for spoil in (lambda: file.write_text("[[token"), lambda: file.chmod(0o666), file.unlink):
        spoil()
        with capture_logs() as logs:
            for _ in range(2):
                clock.now += LOOK_EVERY_S
                assert (await tokens.principal(ADA)).id == "ada"
        assert [line["event"] for line in logs] == ["tokens_file_refused"]
        assert ADA not in str(logs)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o622, 0o666])
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(BadTokensFile, match="chmod go-w"):
        TokensFile(str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTokensFile, match="no such file"):
        TokensFile(str(tmp_path / "tokens.toml"))
    with pytest.raises(BadTokensFile, match="cannot be read"):
        TokensFile(str(tmp_path))


def test_a_huge_file_is_refused(file: Path) -> None:
    file.write_text("#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(BadTokensFile, match="bytes"):
        TokensFile(str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[token]]", "token.0.name"),
        ("[[tokens]]\nname = 'x'", "tokens"),
        (entry(ADA, "ada").replace("sha256", "sha265"), "sha256"),
        (entry(ADA, "ada", more='roles = ["operators"]'), "token.0.roles.0"),
        (entry(ADA, "ada", more='expires = "never"'), "token.0.expires"),
        (entry(ADA, "system"), "system"),
        (entry(ADA, " ada"), "space"),
        (entry(ADA, "ada", workspace=""), "workspace"),
        (f'[[token]]\nname = "ada"\nsha256 = "{ADA}"\nworkspace = "acme"', "token.0.sha256"),
        (entry(ADA, "ada") + entry(ADA, "bob"), "two entries"),
        ("".join(entry(str(n), "ada") for n in range(TOKENS_MAX + 1)), "token"),
        ("[[", "Invalid"),
    ],
    ids=range(12),
)
def test_what_a_file_may_not_hold_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parsed(text)
    assert ADA not in str(refused.value)


def test_an_empty_file_lets_nobody_in() -> None:
    assert parsed("# none yet\n") == ()
