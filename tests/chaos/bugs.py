"""Deliberate bugs, each the loss of one guard, to show that the suite would see it.

A bug is a replacement in the text of one SQL function, made in the world's own database before anything runs. If the
text is not found exactly once the bug is out of date, and that is an error, not a pass.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from tests.chaos.schedule import Card
from threadhold.storage.migrate import migrate, scripts
from threadhold.storage.sql import statements

SCHEMA: Final = "threadhold"


@dataclass(frozen=True, slots=True)
class Bug:
    """What is taken away.

    Args:
        function: the name of the function without its version, such as "end".
        cuts: patterns and what comes in their place, each of which must match once within the function.
        found_by: the rules of the judge, one of which sees it.
        more: faults that uncover it; they come more often, so that one seed is enough.
    """

    function: str
    cuts: Sequence[tuple[str, str]]
    found_by: frozenset[str]
    more: Sequence[Card] = ()


_LOCK: Final = r"SELECT \* INTO t FROM threads WHERE id = p_thread FOR NO KEY UPDATE;"
BUGS: Final[Mapping[str, Bug]] = {
    "no look at the inbox at the end": Bug(
        "end",
        [(r"IF status = 'completed' AND", "IF false AND")],
        frozenset({"a completed run has shown every message that it was to take"}),
    ),
    "no token in record": Bug(
        "record",
        [(r"IF t\.claim_id IS DISTINCT FROM p_claim THEN outcome := 'fenced'; RETURN; END IF;", "")],
        frozenset({"no write of a zombie", "facts of a run stand within its attempts"}),
        [("hold", "worker -> postgres")] * 25,
    ),
    "lock and look in one statement": Bug(
        "end",
        [
            (
                _LOCK,
                "SELECT jsonb_array_length(_inbox(x.id)) INTO unseen FROM threads x WHERE x.id = p_thread "
                "FOR NO KEY UPDATE; SELECT * INTO t FROM threads WHERE id = p_thread;",
            ),
            (r"DECLARE t threads;", "DECLARE unseen int; t threads;"),
            (r"t\.waiting > 0 AND jsonb_array_length\(_inbox\(p_thread\)\) > 0", "unseen > 0"),
        ],
        frozenset({"a completed run has shown every message that it was to take"}),
        [("slow commits", "postgres")] * 8,
    ),
    "renewals that do not last": Bug(
        "renew",
        [
            (
                r"SET expires_at = clock_timestamp\(\) \+ p_ttl,",
                "SET expires_at = clock_timestamp() + p_ttl / 15,",
            )
        ],
        frozenset({"no two attempts of a thread overlap"}),
    ),
}


async def installed(url: str, name: str | None) -> None:
    """Bring a database to this version, and take one guard away."""
    await migrate(url, schema=SCHEMA)
    if name is None:
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(statements(SCHEMA)["enter_schema"])
            await connection.execute(without_guard(BUGS[name]))
    finally:
        await connection.close()


def without_guard(bug: Bug) -> str:
    """Return the definition of the function in its newest version, with the bug in it."""
    text = "\n".join(script.text for script in scripts() if not script.once)
    pattern = rf"CREATE OR REPLACE FUNCTION {bug.function}_v\d+\(.*?\n(?:END )?\$\$;"
    definition = re.findall(pattern, text, re.DOTALL)[-1]
    for cut, instead in bug.cuts:
        count = len(re.findall(cut, definition))
        definition = re.sub(cut, instead, definition)
        if count != 1:
            raise ValueError(f"{cut!r} was found {count} times in {bug.function}")
    return str(definition)
