"""The export of the record on real servers: complete and in order, for those who may see it."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.http.test_problems import assert_problem
from tests.identity.house import PEOPLE, House, Scene, open_house
from tests.identity.issuer import secret_token
from tests.project.sources import ROOT
from tests.support.agents import app
from tests.support.servers import TestServers
from threadhold import Decision, Principal, open_runner
from threadhold.adapters.client import Client, ClientError
from threadhold.storage import log

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
THREAD: Final = "0195f1f0-0000-7000-8000-000000000001"
TEXT: Final = "line\u2028end \x85 caf\u00e9 \u2603"


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what tests write have many pages."""
    monkeypatch.setattr(log, "EXPORT_ROWS", 3)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(servers: TestServers) -> AsyncIterator[House]:
    """Open one house for all tests of this file."""
    async with open_house(servers) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scenes(house: House) -> tuple[Scene, Scene]:
    """Make threads of the workspace, with facts and without, and one elsewhere."""
    for who in ("owner", "writer", "namesake"):
        for _ in range(4):
            await house.rest(who, "POST", "threads", {"agent": "scripted"})
    script = {"agent": "scripted", "content": f'call pay {{"amount": 5}} | say {TEXT}'}
    assert (await house.rest("namesake", "POST", "messages", script))[0] == "ok"
    paused = await house.paused(), await house.paused()
    await house.rest("owner", "POST", f"requests/{paused[0].request}/answer", {"kind": "approve"})
    await house.rest("owner", "GET", f"threads/{paused[0].thread}/frames?until=idle")
    await house.rest("owner", "POST", f"threads/{paused[0].thread}/messages", {"content": f"say {TEXT}"})
    await house.rest("owner", "GET", f"threads/{paused[0].thread}/frames?until=idle")
    return paused


async def export(house: House, who: str, query: str = "") -> httpx.Response:
    """Export as somebody."""
    headers = {"authorization": f"Bearer {secret_token(**PEOPLE[who])}"}
    return await house.client.get(f"/v1/export?{query}", headers=headers)


def lines_of(answer: httpx.Response) -> list[Json]:
    """Return the lines of a complete export without the last one."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/jsonl"
    assert answer.text.isascii()
    *lines, end = [json.loads(line) for line in answer.text.splitlines()]
    assert end == {"end": True, "facts": len(lines)}
    return lines


async def exported(house: House, who: str, query: str = "") -> list[Json]:
    """Return the lines of somebody's export without the last one."""
    return lines_of(await export(house, who, query))


async def facts_of(house: House, thread: str) -> list[Json]:
    """Return the lines of a thread as its pages of facts tell them."""
    found: list[Json] = []
    cursor: Any = 0
    while cursor is not None:
        _, page = await house.rest("operator", "GET", f"threads/{thread}/facts?limit=100&cursor={cursor}")
        found += page["items"]
        cursor = page["next_cursor"]
    return [{**fact, "thread": thread, "at": fact["at"].replace("Z", "+00:00")} for fact in found]


def places(lines: list[Json]) -> list[tuple[str, int]]:
    """Return where lines stand."""
    return [(line["thread"], line["seq"]) for line in lines]


async def all_threads(house: House) -> list[str]:
    """Return the threads of the workspace."""
    _, page = await house.rest("operator", "GET", "threads?limit=100")
    assert page["next_cursor"] is None
    return sorted(thread["id"] for thread in page["items"])


async def test_a_workspace_is_complete_and_in_order(house: House, scenes: tuple[Scene, Scene]) -> None:
    lines = await exported(house, "operator")
    expected = [fact for thread in await all_threads(house) for fact in await facts_of(house, thread)]
    assert lines == expected
    assert places(lines) == sorted(places(lines))
    assert {scene.thread for scene in scenes} <= {line["thread"] for line in lines}
    assert list(lines[0]) == ["thread", "seq", "run", "fence", "kind", "at", "data", "admission"]
    told = [line["data"]["content"] for line in lines if line["kind"] == "message_accepted"]
    assert f"say {TEXT}" in told


async def test_each_line_of_a_run_says_what_the_run_was_admitted_with(
    house: House, scenes: tuple[Scene, Scene]
) -> None:
    lines = await exported(house, "operator")
    admitted = {"principal": "owner", "interface": "rest", "environment": "development", "budget": None}
    assert all(line["admission"] == (admitted if line["run"] else None) for line in lines)
    assert {bool(line["run"]) for line in lines} == {True, False}


async def test_a_thread_and_a_run_are_exported_by_themselves(
    house: House, scenes: tuple[Scene, Scene]
) -> None:
    done = scenes[0]
    facts = await facts_of(house, done.thread)
    assert await exported(house, "reader", f"thread={done.thread}") == facts
    of_run = [fact for fact in facts if fact["run"] == done.run]
    assert 0 < len(of_run) < len(facts)
    assert await exported(house, "reader", f"run={done.run}") == of_run
    assert await exported(house, "reader", f"run={done.run}&thread={done.thread}") == of_run
    empty = (await house.rest("owner", "POST", "threads", {"agent": "scripted"}))[1]["id"]
    assert await exported(house, "owner", f"thread={empty}") == []


@pytest.mark.parametrize("rows", [1, 3, 200])
async def test_from_any_line_on_it_brings_the_rest(
    house: House, scenes: tuple[Scene, Scene], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(log, "EXPORT_ROWS", rows)
    done = scenes[0]
    for who, query in (
        ("operator", ""), ("owner", f"thread={done.thread}&"), ("owner", f"run={done.run}&"),
    ):  # fmt: skip
        whole = await exported(house, who, query)
        for number, (thread, seq) in enumerate(places(whole), 1):
            assert await exported(house, who, f"{query}after={thread}.{seq}") == whole[number:], number
    first, second = sorted(scene.thread for scene in scenes)
    assert await exported(house, "owner", f"thread={first}&after={second}.1") == []
    assert await exported(house, "owner", f"thread={second}&after={first}.9") == await facts_of(house, second)


async def test_a_page_is_bounded_in_bytes_too(
    house: House, scenes: tuple[Scene, Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await exported(house, "operator")
    sizes: list[int] = []
    original = log.PostgresLog.export

    async def counted(self: log.PostgresLog, **given: Any) -> Any:
        page = await original(self, **given)
        sizes.append(len(page.items))
        return page

    monkeypatch.setattr(log.PostgresLog, "export", counted)
    monkeypatch.setattr(log, "EXPORT_ROWS", 200)
    monkeypatch.setattr(log, "PAGE_BYTES_MAX", 1)
    assert await exported(house, "operator") == whole
    assert max(sizes) == 1
    for query in (f"thread={scenes[0].thread}", f"run={scenes[0].run}"):
        sizes.clear()
        assert len(await exported(house, "owner", query)) == len(sizes)


async def test_who_may(house: House, scenes: tuple[Scene, Scene]) -> None:
    done, waits = scenes
    for who in ("owner", "writer", "reader", "operator"):
        for query in (f"thread={waits.thread}", f"run={waits.run}"):
            assert await exported(house, who, query), who
    # It is open to the approver for as long as something is asked there.
    assert await exported(house, "approver", f"thread={waits.thread}")
    strangers = [("stranger", waits), ("namesake", waits), ("namesake", done), ("approver", done)]
    for who, scene in strangers:
        for query in (
            f"thread={scene.thread}",
            f"run={scene.run}",
            f"thread={scene.thread}&after={THREAD}.1",
        ):
            assert_problem(await export(house, who, query), 404, "not_found")
    assert_problem(await export(house, "owner", f"thread={done.thread}&run={waits.run}"), 404, "not_found")
    for query in (f"thread={uuid4()}", f"run={uuid4()}"):
        assert_problem(await export(house, "operator", query), 404, "not_found")
    for who in ("owner", "reader", "stranger", "approver"):
        refused = assert_problem(await export(house, who), 403, "forbidden")
        assert refused["data"] == {"verb": "export the whole workspace"}
    elsewhere = {line["thread"] for line in await exported(house, "namesake")}
    assert len(elsewhere) == 1
    assert not elsewhere & set(await all_threads(house))


@pytest.mark.parametrize("query", ["thread=nope", "run=nope", "after=nope", f"after={THREAD}", "after=1-1-1"])
async def test_what_names_nothing_that_could_be(house: House, query: str) -> None:
    assert_problem(await export(house, "operator", query), 422, "invalid_input")


async def test_facts_that_are_added_meanwhile_break_nothing(
    house: House, scenes: tuple[Scene, Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await exported(house, "operator")
    original, pages = log.PostgresLog.export, 0

    async def export_while_people_write(self: log.PostgresLog, **given: Any) -> Any:
        nonlocal pages
        pages += 1
        if pages in (2, 4):
            script = {"agent": "scripted", "content": "say hello"}
            await house.rest("owner", "POST", "messages", script)
            for scene in scenes:
                await house.rest("owner", "POST", f"threads/{scene.thread}/messages", {"content": "say hi"})
        return await original(self, **given)

    monkeypatch.setattr(log.PostgresLog, "export", export_while_people_write)
    lines = await exported(house, "operator")
    assert pages > 4
    assert set(places(before)) < set(places(lines))
    assert places(lines) == sorted(set(places(lines)))
    for thread in {line["thread"] for line in lines}:
        seqs = [line["seq"] for line in lines if line["thread"] == thread]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_who_loses_sight_of_a_thread_gets_no_more_of_it(
    house: House, scenes: tuple[Scene, Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await house.paused()
    original, pages = log.PostgresLog.export, 0

    async def export_and_let_out(self: log.PostgresLog, **given: Any) -> Any:
        nonlocal pages
        pages += 1
        if pages == 2:
            await house.rest("owner", "DELETE", f"threads/{scene.thread}/members/reader")
        return await original(self, **given)

    monkeypatch.setattr(log.PostgresLog, "export", export_and_let_out)
    monkeypatch.setattr("threadhold.adapters.http.export.PIECE_CHARS", 1)
    *lines, end = (await export(house, "reader", f"thread={scene.thread}")).text.splitlines()
    assert (len(lines), json.loads(end)["error"]["code"]) == (3, "not_found")


async def test_the_client_and_the_server_agree(house: House, scenes: tuple[Scene, Scene]) -> None:
    token = secret_token(**PEOPLE["operator"])
    async with Client(f"http://127.0.0.1:{house.port}", token=token) as client:
        facts = [fact async for fact in client.export()]
        assert [json.loads(fact.line()) for fact in facts] == await exported(house, "operator")
        after = facts[4].place.cursor()
        assert [fact async for fact in client.export(after=after)] == facts[5:]
        of_run = [fact async for fact in client.export(run=scenes[0].run)]
        assert of_run == [fact for fact in facts if fact.run == scenes[0].run]
        with pytest.raises(ClientError) as refused:
            _ = [fact async for fact in client.export(thread=str(uuid4()))]
        assert refused.value.code == "not_found"


async def test_the_program_on_the_page_reads_decisions(servers: TestServers) -> None:
    page = (ROOT / "docs" / "governance.md").read_text()
    (code,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        if "requests_of" in block
    )
    scope: Json = {}
    exec(compile(f"from threadhold import Principal, Runner\n{code}", "governance.md", "exec"), scope)
    ada = Principal(id="ada", workspace="home", roles=frozenset({"operator"}))
    stack = await servers.new_stack()
    async with open_runner(app, stack.settings(grace=0), capacity=2) as runner:
        sent = await runner.send(None, 'call pay {"amount": 5}', by=ada, agent="scripted")
        async for _ in runner.watch(sent.thread, by=ada, until="idle"):
            pass
        (request,) = await runner.requests(by=ada)
        await runner.answer(request.id, Decision.reject("no"), by=ada)
        (line,) = await scope["requests_of"](runner, ada)
    assert line.endswith(f" {sent.thread}: reject by ada")
    await servers.take_back(stack)
