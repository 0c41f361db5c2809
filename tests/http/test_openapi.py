"""The OpenAPI document is true: a search through all that it allows and forbids finds nothing that contradicts it.

The search is schemathesis, with all its checks, against the real app with a worker, over real servers. The long form:

    SEEDS=1,2,3 EXAMPLES=50 python -m pytest tests/http/test_openapi.py
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.http.scripted import ScriptedRunner
from tests.identity.house import House, open_house
from tests.identity.issuer import secret_token
from tests.project.sources import ROOT
from tests.support.servers import TestServers
from threadhold.adapters.http.app import create_api
from threadhold.adapters.http.schemas import Body
from threadhold.runner.records import Principal

SEEDS: Final = [int(seed) for seed in os.environ.get("SEEDS", "1").split(",")]
EXAMPLES: Final = int(os.environ.get("EXAMPLES", "3"))
# Some fifteen seconds on a machine of its own, and nothing here is about speed.
TIMEOUT_S: Final = 60 + 30 * EXAMPLES
CONFIG: Final = Path(__file__).with_name("schemathesis.toml")
OPEN_REQUESTS: Final = 5
LOOK_EVERY_S: Final = 0.2
CALLER: Final[dict[str, Any]] = {"sub": "owner", "roles": ["user", "approver", "operator"]}


@asynccontextmanager
async def asking(house: House) -> AsyncIterator[None]:
    """Keep some requests open for the length of a block, whatever is answered and stopped."""

    async def ask() -> None:
        while True:
            _, page = await house.rest("owner", "GET", "requests")
            for _ in range(OPEN_REQUESTS - len(page["items"])):
                await house.rest(
                    "owner", "POST", "messages", {"agent": "scripted", "content": 'call pay {"amount": 5}'}
                )
            await asyncio.sleep(LOOK_EVERY_S)

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def search(house: House, seed: int, folder: Path) -> tuple[int, str]:
    """Search with one seed; return the exit code and what was found."""
    # Nothing of the product runs in there, so its coverage would only take time.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    searching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", f"--config-file={CONFIG}", "--no-color",
        "run", f"http://127.0.0.1:{house.port}/openapi.json",
        "--header", f"Authorization: Bearer {secret_token(**CALLER)}",
        "--checks", "all", "--seed", str(seed), "--max-examples", str(EXAMPLES),
        "--continue-on-failure", "--request-timeout", "20",
        cwd=folder, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await searching.communicate()
    finally:
        if searching.returncode is None:
            searching.kill()
            await searching.wait()
    return await searching.wait(), out.decode()


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="needs the tools of `make check`")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_contradicts_the_document(servers: TestServers, tmp_path: Path, seed: int) -> None:
    async with open_house(servers) as house, asking(house):
        code, told = await search(house, seed, tmp_path)
    sys.stdout.write(told[told.find("= SUMMARY") :])
    assert code == 0, told
    operations = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", told)
    assert operations is not None
    assert len(set(operations.groups())) == 1


def test_no_check_is_left_out() -> None:
    assert "exclude" not in CONFIG.read_text()
    assert "enabled" not in CONFIG.read_text()
    assert (ROOT / "pyproject.toml").read_text().count("schemathesis==") == 1


def document() -> dict[str, Any]:
    """Return the document of an API that asks for tokens, as it is the second time that it is asked for."""
    nobody: Any = None
    app = create_api(cast(Any, ScriptedRunner()), health=nobody, drain=asyncio.Event(), authenticate=refuse)
    first = deepcopy(app.openapi())
    assert app.openapi() == first
    return first


def operations() -> dict[str, dict[str, Any]]:
    """Return the operations of the document, by method and path."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def refuse(headers: object) -> Principal:
    """Know nobody."""
    raise AssertionError


def test_operations_have_names_of_their_own_and_say_what_they_do() -> None:
    found = operations()
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z_]+", id) for id in ids)
    assert all(
        operation["summary"] and operation["description"].endswith(".") for operation in found.values()
    )


def test_operations_name_their_problems() -> None:
    for place, operation in operations().items():
        if not place.partition(" ")[2].startswith("/v1/"):
            continue
        problems = {
            status
            for status, answer in operation["responses"].items()
            if "application/problem+json" in answer.get("content", {})
        }
        least = {"400", "401", "403", "422", "500", "503"} | ({"404"} if "{" in place else set())
        with_body = {"413", "415"} if "requestBody" in operation else set()
        assert least | with_body <= problems, place


def test_bodies_have_examples_that_are_accepted() -> None:
    schemas = document()["components"]["schemas"]
    for body in Body.__subclasses__():
        examples = schemas[body.__name__].get("examples", [])
        assert examples, body
        for example in examples:
            body.model_validate(example)


def test_links_lead_to_operations_and_their_parameters() -> None:
    found = {operation["operationId"]: operation for operation in operations().values()}
    links = [
        link
        for operation in found.values()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert links
    for link in links:
        taken = {parameter["name"] for parameter in found[link["operationId"]]["parameters"]}
        assert set(link["parameters"]) <= taken
