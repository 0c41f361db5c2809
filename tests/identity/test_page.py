"""What the page on identity shows is true: its commands and its code run, against a server that asks for tokens."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.identity.issuer import SECRET
from tests.identity.test_who_may import TABLE
from tests.project.sources import ROOT
from tests.support.processes import Processes
from threadhold.adapters.http.app import ROUTERS
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.identity import jwks, keyring, listed, signed
from threadhold.adapters.settings import JWT_SECRET_BYTES_MIN, Settings
from threadhold.runner.errors import InvalidInput

PAGE = (ROOT / "docs" / "identity.md").read_text()
HERE = "http://127.0.0.1:8000"
PROGRAM = f"{shlex.quote(sys.executable)} -m threadhold"
BLOCKS = dict(re.findall(r"<!-- run: ([\w ]+) -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
YES = {"yes": "ok", "": "no", "no": "-"}


def run(code: list[str], *, url: str, env: dict[str, str], folder: Path) -> str:
    """Run blocks of the page in one shell, against a server elsewhere than the page says."""
    script = "\n".join(code).replace(HERE, url).replace("threadhold ps", f"{PROGRAM} ps")
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(code: str, *, url: str, env: dict[str, str]) -> str:
    """Run Python of the page."""
    code = code.replace(HERE.removeprefix("http"), url.removeprefix("http"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_run_in_order(spawn: Processes, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "THREADHOLD_JWT_SECRET": SECRET, "NO_COLOR": "1"}
    made = run([BLOCKS["make a token"], 'printf %s "$TOKEN"'], url=HERE, env=env, folder=tmp_path)
    token = made.splitlines()[-1]
    file = tmp_path / "tokens.toml"
    assert token not in file.read_text()
    # The agent of the page, as far as a name goes.
    who = {"THREADHOLD_TOKENS_FILE": str(file), "THREADHOLD_JWT_SECRET": SECRET}
    _, url = spawn.api(env={"AGENTS": "support", **who})
    with_token = {**env, "TOKEN": token, "THREADHOLD_TOKEN": token}
    told = run([BLOCKS["call with it"]], url=url, env=with_token, folder=tmp_path)
    assert told.splitlines() == ['{"items":[],"next_cursor":null}nothing runs']
    told = run([BLOCKS["members"]], url=url, env=with_token, folder=tmp_path)
    assert told.count('"principal":"bob"') == 2
    told = python(BLOCKS["over a websocket"], url=url, env=with_token)
    assert '"principal":"ada"' in told
    assert '"disposition":"started"' in told
    bobs = python(BLOCKS["sign a token"], url=url, env=env).strip()
    told = run([BLOCKS["call with it"]], url=url, env={**with_token, "TOKEN": bobs}, folder=tmp_path)
    assert "nothing runs" in told
    assert token not in spawn_log(tmp_path)
    assert bobs not in spawn_log(tmp_path)


def spawn_log(folder: Path) -> str:
    """Return all that processes of the test have written."""
    return "".join(path.read_text() for path in folder.glob("*.log"))


def test_the_program_of_ones_own_runs() -> None:
    scope: dict[str, object] = {}
    exec(compile(BLOCKS["embed"], "identity.md", "exec"), scope)
    authenticate = scope["authenticate"]
    assert callable(authenticate)
    assert authenticate({"x-forwarded-user": "ada"}).id == "ada"
    with pytest.raises(Unauthenticated) as refused:
        authenticate({})
    assert refused.value.reason == "missing"
    with pytest.raises(InvalidInput):
        authenticate({"x-forwarded-user": "system"})


def test_every_block_that_may_run_does() -> None:
    assert set(BLOCKS) == {
        "make a token", "call with it", "sign a token", "over a websocket", "members", "embed",
    }  # fmt: skip


def test_the_settings_exist() -> None:
    named = set(re.findall(r"THREADHOLD_(\w+)", PAGE))
    assert {name.lower() for name in named} <= set(Settings.model_fields)
    assert {name for name in Settings.model_fields if name.startswith("jwt_")} <= {n.lower() for n in named}


def test_the_paths_exist() -> None:
    routes = {re.sub(r"\{[\w:]+\}", "{}", route.path) for router in ROUTERS for route in router.routes}
    assert {f"/v1/{path}" for path in re.findall(r"8000/v1/(\w+)", PAGE)} <= routes


def test_the_table_is_that_of_the_tests() -> None:
    """The page has one row for several verbs of the tests; each of these has to say the same."""
    page = PAGE.partition("<!-- table: who may -->")[2]
    rows = {
        cells[0]: cells[1:] for cells in re.findall(r"^\|" + r"([^|\n]*)\|" * 7 + "$", page, re.MULTILINE)
    }
    rows = {name.strip(): [cell.strip() for cell in cells] for name, cells in rows.items()}
    people = ["owner", "writer", "reader", "approver", "operator", "stranger"]
    verbs = {
        "look, watch, list members": ["get thread", "watch", "watch from a cursor", "list members"],
        "send, stop, change the thread": ["send", "stop thread", "change thread"],
        "answer a request": ["answer"],
        "let members in and out": ["add a member", "remove a member"],
    }
    head, *lines = [re.split(r"\s{2,}", line.strip()) for line in TABLE.strip().splitlines()]
    for row, names in verbs.items():
        expected = [YES.get(cell, "ok") for cell in rows[row]]
        for name in names:
            cells = next(line for line in lines if line[:2] == ["paused", name])
            assert [cells[head.index(who)] for who in people] == expected, name


def test_the_numbers_are_those_of_the_code() -> None:
    assert (keyring.FRESH_S, keyring.RETRY_S, keyring.STALE_S) == (300, 10, 3600)
    assert (signed.LEEWAY_S, listed.LOOK_EVERY_S, listed.TOKEN_CHARS_MIN) == (30, 1, 32)
    assert (Limits().auth_s, Limits().recheck_s, JWT_SECRET_BYTES_MIN) == (10, 60, 32)
    assert {name[:2] for name in jwks.ALGORITHMS} == {"RS", "PS", "ES", "Ed"}
