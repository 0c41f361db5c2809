"""Guards of the database's functions, each taken out of the text: the walks or the pairs must notice.

`mutants.toml` lists those that walks notice; those without a lock, or with one that comes too late, are for the pairs.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from threadhold.storage.sql import statements


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    name: str
    file: str
    old: str
    new: str
    function: str = ""

    def text(self) -> str:
        """Return the file with the change.

        Raises:
            ValueError: if what is to be changed does not stand there exactly once, or is not changed.
        """
        if self.old == self.new:
            raise ValueError(f"{self.name!r} changes nothing; write it anew: {self.old}")
        text = source(self.file)
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} has this {text.count(self.old)} times, write the mutant anew: {self.old}"
            )
        return text.replace(self.old, self.new)


def source(file: str) -> str:
    """Return the text of one of the product's function files."""
    return (files("threadhold.storage") / "functions" / file).read_text("utf-8")


async def load(connection: Any, schema: str, text: str) -> None:
    """Put functions into a schema, over those of the same names."""
    async with connection.transaction():
        await connection.execute(statements(schema)["enter_schema"])
        await connection.execute(text)


def body_of(function: str, file: str) -> str:
    """Return the whole text of one function."""
    found = re.search(
        rf"^CREATE OR REPLACE FUNCTION {function}\(.*?^(?:END )?\$\$;$", source(file), re.M | re.S
    )
    if found is None:
        raise ValueError(f"{file} has no function {function}")
    return found[0]


LOCK: Final = re.compile(
    r"    (SELECT \* INTO t|PERFORM 1) FROM threads WHERE id = ([\w.]+) FOR NO KEY UPDATE( SKIP LOCKED)?;"
)
LOCKING: Final = {
    "send_v2": "02_messages.sql",
    "stop_v1": "02_messages.sql",
    "update_thread_v2": "02_messages.sql",
    "claim_v4": "03_runs.sql",
    "hold_v3": "03_runs.sql",
    "record_v2": "03_runs.sql",
    "end_v1": "03_runs.sql",
    "release_v1": "03_runs.sql",
    "hand_over_v2": "03_runs.sql",
    "partial_v1": "03_runs.sql",
    "lapse_v2": "05_claims.sql",
    "pause_v1": "06_requests.sql",
    "answer_v1": "06_requests.sql",
    "expire_v1": "06_requests.sql",
    "replay_v2": "08_executions.sql",
    "remote_ask_v1": "13_remote.sql",
}


def _without_lock(name: str, function: str) -> Mutant:
    body = body_of(function, LOCKING[function])
    return Mutant(
        name,
        LOCKING[function],
        body,
        LOCK.sub(r"    \1 FROM threads WHERE id = \2;", body),
        function,
    )


def _with_lock_too_late(name: str, function: str) -> Mutant:
    """Decide by what was read before the lock, as a statement does that reads and locks at once."""
    body = body_of(function, LOCKING[function])
    late = (
        r"    \1 FROM threads WHERE id = \2;"
        r" PERFORM 1 FROM threads WHERE id = \2 FOR NO KEY UPDATE\3; IF NOT FOUND THEN t := NULL; END IF;"
    )
    return Mutant(name, LOCKING[function], body, LOCK.sub(late, body), function)


def _changed(name: str, file: str, old: str, new: str, function: str = "") -> Mutant:
    if not function:
        return Mutant(name, file, old, new)
    body = body_of(function, file)
    if body.count(old) != 1:
        raise ValueError(f"{function} has this {body.count(old)} times, write {name!r} anew: {old}")
    return Mutant(name, file, body, body.replace(old, new), function)


def _listed() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())


def walked() -> dict[str, tuple[Mutant, int]]:
    """Return the mutants that walks notice, each with the seed of a walk that did."""
    listed = [dict(item) for item in _listed()["mutant"]]
    return {item["name"]: (_changed(**item), seed) for item in listed for seed in [item.pop("seed", 0)]}


def raced() -> dict[str, tuple[Mutant, tuple[str, str, str]]]:
    """Return the mutants that pairs notice, each with the scene and the two calls that show it."""
    found = {}
    for item in _listed()["race"]:
        name: str = item["name"]
        scene, first, second = item["pair"]
        if "old" in item:
            mutant = _changed(name, item["file"], item["old"], item["new"], item["function"])
        else:
            change = _without_lock if item["lock"] == "missing" else _with_lock_too_late
            mutant = change(name, item["function"])
        found[name] = (mutant, (scene, first, second))
    return found
