"""Migrations: all or nothing, once, side by side, and never edited after the fact."""

import asyncio
from collections.abc import Callable
from typing import Final

import asyncpg
import pytest

from tests.support.servers import TestServers
from threadhold.runner.errors import Unavailable
from threadhold.storage import migrate as module
from threadhold.storage.migrate import ChangedMigration, Script, due, migrate, scripts
from threadhold.storage.pool import Database
from threadhold.storage.sql import InvalidSchemaName, parse, statements

# As databases have them. A new migration gets a line here, and no line ever changes.
APPLIED: Final = {
    "migrations/0001_tables.sql": "fabb1b279edd90179f5da4aea0a2de10d02341aa67eb0d388d47dc9ae06d121c",
    "migrations/0002_survival.sql": "30467c493504a0112032eb4cf5bb0f0bfdde5eb9863a36293a24e1346f3058b9",
    "migrations/0003_members.sql": "d2cf8eb58c166f3e92c95e7feb241ae740398c552678dc9a3b967d1f7d67d6ef",
    "migrations/0004_leftovers.sql": "3ec240c10cdac21631e8d734f82025e9926848790aebc6db26d81200ceacbb4f",
    "migrations/0005_executions.sql": "503184617662c61564c509261e752e12c4323907fc824c82024a573c3b50221d",
    "migrations/0006_governance.sql": "2108ff305bb339bb86f48460c87f56e1c111d998a9283fbc579ca4bc1ae8f089",
}


# Two facts, a chunk, a fact, a chunk: each a second after the one before.
HISTORY_OF_BEFORE: Final = """
    INSERT INTO threadhold.workspaces VALUES ('home');
    INSERT INTO threadhold.threads (id, workspace, owner, agent, log_seq, history_chunks)
    VALUES (md5('t')::uuid, 'home', 'me', 'a', 3, 2);
    INSERT INTO threadhold.facts (thread_id, seq, fence, kind, at)
    SELECT md5('t')::uuid, seq, 1, 'noted', timestamptz '2026-01-01' + at * interval '1 s'
      FROM (VALUES (1, 1), (2, 2), (3, 4)) AS f (seq, at);
    INSERT INTO threadhold.history (thread_id, chunk, run_id, fence, messages, at)
    SELECT md5('t')::uuid, chunk, md5('r')::uuid, 1, '[]', timestamptz '2026-01-01' + at * interval '1 s'
      FROM (VALUES (1, 3), (2, 5)) AS h (chunk, at);
"""


async def test_several_migrators_apply_everything_once(servers: TestServers) -> None:
    url = await servers.new_database()
    applied = await asyncio.gather(*(migrate(url) for _ in range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, len(scripts())]


async def test_two_stacks_share_a_database(servers: TestServers) -> None:
    url = await servers.new_database()
    await migrate(url, schema="one")
    await migrate(url, schema="two")
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM two.run_transitions") == 10
        # The functions keep their own schema, whatever the caller's path is.
        assert await connection.fetchval("SELECT count(*) FROM one.audit_v2(NULL)") == 0
    finally:
        await connection.close()


async def test_history_of_before_gets_its_positions(
    servers: TestServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.new_database()
    earlier = [script for script in scripts() if script.once and script.name < "migrations/0005"]
    with monkeypatch.context() as patched:
        patched.setattr(module, "scripts", lambda: earlier)
        await migrate(url)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(HISTORY_OF_BEFORE)
        await migrate(url)
        rows = await connection.fetch("SELECT chunk, parent, seq FROM threadhold.history ORDER BY chunk")
        assert [tuple(row) for row in rows] == [(1, 0, 2), (2, 1, 3)]
        assert await connection.fetchval("SELECT history_head FROM threadhold.threads") == 2
        broken = await connection.fetch("SELECT invariant FROM threadhold.audit_v2(NULL)")
        assert "the history's head is one of its chunks" not in {row["invariant"] for row in broken}
    finally:
        await connection.close()


async def test_failing_script_leaves_nothing(servers: TestServers, monkeypatch: pytest.MonkeyPatch) -> None:
    url = await servers.new_database()
    broken = Script(name="migrations/9999_broken.sql", text="SELECT nonsense", once=True)
    whole = scripts()
    monkeypatch.setattr(module, "scripts", lambda: [*whole, broken])
    with pytest.raises(asyncpg.UndefinedColumnError):
        await migrate(url)
    connection = await asyncpg.connect(url)
    try:
        assert not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'threadhold'")
    finally:
        await connection.close()


async def test_database_without_a_schema_says_what_to_do(servers: TestServers) -> None:
    database = Database(await servers.new_database())
    await database.open()
    with pytest.raises(Unavailable, match="threadhold migrate"):
        await database.run("ping")
    await database.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda url: url.rpartition("/")[0] + "/nowhere", "does not exist"),
        (lambda url: url.replace("postgres@", "nobody_here@"), "nobody_here"),
        (lambda url: url + "?no_such_setting=1", "no_such_setting"),
    ],
)
async def test_url_that_the_database_refuses_says_which_setting_to_check(
    servers: TestServers, change: Callable[[str], str], said: str
) -> None:
    url = change(await servers.new_database())
    with pytest.raises(Unavailable, match=f"{said}.*THREADHOLD_DATABASE_URL"):
        await migrate(url)


def test_functions_are_applied_when_they_change_and_migrations_never() -> None:
    once = Script(name="migrations/1.sql", text="a", once=True)
    function = Script(name="functions/1.sql", text="b", once=False)
    assert due([once, function], {}) == [once, function]
    assert due([once, function], {once.name: once.checksum, function.name: "older"}) == [function]
    with pytest.raises(ChangedMigration):
        due([once], {once.name: "edited since"})


def test_no_migration_has_been_edited_since_databases_have_it() -> None:
    assert {script.name: script.checksum for script in scripts() if script.once} == APPLIED


def test_every_statement_has_a_sentence_of_comment() -> None:
    for name, text in statements("threadhold").items():
        assert text.startswith("-- "), name
        assert "{schema}" not in text


def test_schema_names_are_checked() -> None:
    with pytest.raises(InvalidSchemaName):
        statements("public; DROP SCHEMA x")
    assert parse("-- name: a\n-- Why.\nSELECT 1;\n\n-- name: b\nSELECT 2;\n") == {
        "a": "-- Why.\nSELECT 1",
        "b": "SELECT 2",
    }
