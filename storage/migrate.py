"""Brings a database to this version: tables by numbered migrations, functions whenever their text changed."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from threadhold.storage.errors import translated
from threadhold.storage.pool import connect
from threadhold.storage.sql import statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One SQL file of ours."""

    name: str
    text: str
    once: bool

    @property
    def checksum(self) -> str:
        """The hash that tells whether the file has changed."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class ChangedMigration(Exception):
    """A migration that was applied before has another text now."""

    def __init__(self, name: str) -> None:
        super().__init__(f"migration {name} was applied with another text; a new step needs a new file")


def scripts() -> list[Script]:
    """Return all scripts in the order in which they are applied."""
    root = files("threadhold.storage")
    found = []
    for folder, once in (("migrations", True), ("functions", False)):
        entries = sorted((root / folder).iterdir(), key=lambda f: f.name)
        found += [
            Script(name=f"{folder}/{entry.name}", text=entry.read_text("utf-8"), once=once)
            for entry in entries
            if entry.name.endswith(".sql")
        ]
    return found


def due(all: list[Script], applied: dict[str, str]) -> list[Script]:
    """Return the scripts that are still to be applied, given the checksums of those that were.

    Raises:
        ChangedMigration: if a migration's text differs from the applied one.
    """
    for script in all:
        if script.once and applied.get(script.name, script.checksum) != script.checksum:
            raise ChangedMigration(script.name)
    return [script for script in all if applied.get(script.name) != script.checksum]


async def migrate(url: str, *, schema: str = "threadhold") -> list[str]:
    """Apply what is missing, all of it or nothing, and return the names of the applied scripts.

    Raises:
        Unavailable: if the database cannot be reached.
        ChangedMigration: if an applied migration was edited.
    """
    connection: Any = await connect(url)
    try:
        with translated():
            async with connection.transaction():
                return await _apply(connection, statements(schema))
    finally:
        await connection.close()


async def _apply(connection: Any, sql: dict[str, str]) -> list[str]:
    for step in ("lock_migrations", "create_schema", "enter_schema", "create_migrations"):
        await connection.execute(sql[step])
    applied = {row["name"]: row["checksum"] for row in await connection.fetch(sql["applied_migrations"])}
    missing = due(scripts(), applied)
    for script in missing:
        await connection.execute(script.text)
        await connection.execute(sql["note_migration"], script.name, script.checksum)
    return [script.name for script in missing]
