"""Migrations: all or nothing, once, side by side, and never edited after the fact."""

import asyncio
from collections.abc import Callable

import asyncpg
import pytest

from tests.support.servers import TestServers
from threadhold.runner.errors import Unavailable
from threadhold.storage import migrate as module
from threadhold.storage.migrate import ChangedMigration, Script, due, migrate, scripts
from threadhold.storage.pool import Database
from threadhold.storage.sql import InvalidSchemaName, parse, statements


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
        assert await connection.fetchval("SELECT count(*) FROM one.audit_v1()") == 0
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
