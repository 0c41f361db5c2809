"""Which servers start: one that others can reach only if it can tell who they are, or was told that it need not."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.identity.issuer import SECRET, secret_token
from tests.support.processes import AGENTS, START_S_MAX, Processes
from threadhold.adapters.http.auth import asked, local_principal
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.identity.errors import BadTokensFile, IdentityMissing
from threadhold.adapters.processes import allowance_of, how_to_authenticate
from threadhold.adapters.settings import Settings

# Each may start processes, on a machine that may be slow.
pytestmark = pytest.mark.timeout(240)

ELSEWHERE = ["0.0.0.0", "::", "192.168.1.7", "example.com", ""]
HERE = ["127.0.0.1", "localhost", "::1"]


@pytest.mark.parametrize("host", HERE)
def test_here_everybody_is_the_local_principal(host: str) -> None:
    assert how_to_authenticate(Settings(), host=host) is local_principal


@pytest.mark.parametrize("host", ELSEWHERE)
def test_elsewhere_nobody_is_let_in_unless_that_was_said(host: str) -> None:
    with pytest.raises(IdentityMissing, match="THREADHOLD_TOKENS_FILE"):
        how_to_authenticate(Settings(), host=host)
    with capture_logs() as logs:
        assert how_to_authenticate(Settings(open_access=True), host=host) is local_principal
    assert [(line["event"], line["log_level"]) for line in logs] == [("api_open", "warning")]


@pytest.mark.parametrize("host", [*HERE, *ELSEWHERE])
@pytest.mark.parametrize("open_access", [False, True])
def test_with_identity_tokens_are_asked_for_everywhere(host: str, open_access: bool) -> None:
    settings = Settings.model_validate({"jwt_secret": SECRET, "open_access": open_access})
    authenticate = how_to_authenticate(settings, host=host)
    with pytest.raises(Unauthenticated):
        asyncio.run(asked(authenticate, {}))
    headers = {"authorization": f"Bearer {secret_token(aud=None)}"}
    assert asyncio.run(asked(authenticate, headers)).id == "ada"


def test_a_file_that_cannot_be_used_is_not_passed_over(tmp_path: Path) -> None:
    settings = Settings(tokens_file=str(tmp_path / "none"), open_access=True)
    with pytest.raises(BadTokensFile):
        how_to_authenticate(settings, host="127.0.0.1")


def test_what_is_allowed_comes_from_the_settings() -> None:
    allowance = allowance_of(Settings(messages_per_minute=1, open_watches=2, open_sockets=3))
    assert (allowance.messages_per_minute, allowance.watches, allowance.sockets) == (1, 2, 3)
    allowance = allowance_of(Settings())
    assert (allowance.messages_per_minute, allowance.watches, allowance.sockets) == (None, None, None)


def test_a_server_that_may_not_start_says_so_in_one_line(spawn: Processes, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[[token]]")
    (tmp_path / "bad.toml").chmod(0o600)
    refused = [
        (spawn.start(command, AGENTS, "--host", "0.0.0.0", "--port", "0", env=env), said)
        for command in ("serve", "dev")
        for env, said in (
            ({}, "THREADHOLD_OPEN_ACCESS"),
            ({"THREADHOLD_TOKENS_FILE": str(tmp_path / "bad.toml")}, "token.0.name"),
        )
    ]
    for process, said in refused:
        assert process.wait(within=START_S_MAX) == 1
        (line,) = process.text().splitlines()
        assert line.startswith("threadhold: ")
        assert said in line
