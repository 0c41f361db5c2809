"""Grants: each use is taken once, by those whom the grant is for, while it lasts; and nobody else learns of it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.storage.conftest import FRIEND, ME, OPERATOR, STRANGER, Desk
from tests.storage.test_members import waits_or_ends
from tests.support.servers import Stack
from threadhold.runner.errors import GrantsFull, InvalidInput, KeyConflict, NotFound
from threadhold.runner.grants import REASON_CHARS_MAX, USES_MAX, Grant, checked_grant
from threadhold.runner.records import NewFact, Principal, Start
from threadhold.storage import grants as store
from threadhold.storage.grants import PostgresGrants
from threadhold.storage.pool import Database

SCHEMA: Final = "threadhold"
HOUR: Final = timedelta(hours=1)


@pytest.fixture
def grants(database: Database) -> PostgresGrants:
    """The store."""
    return PostgresGrants(database)


@pytest.fixture
async def behind(stack: Stack) -> AsyncIterator[Any]:
    """A connection that changes the database behind the store's back."""
    connection: Any = await asyncpg.connect(stack.database_url, server_settings={"search_path": SCHEMA})
    yield connection
    await connection.close()


async def granted(
    grants: PostgresGrants,
    capability: str = "wire",
    *,
    by: Principal = OPERATOR,
    key: str | None = None,
    **terms: Any,
) -> Grant:
    """Grant one use to anybody, unless the terms say otherwise."""
    given = {"uses": 1, "principal": None, "thread": None, "expires_in": None, "reason": "", **terms}
    return await grants.create(checked_grant(capability, **given), by=by, key=key)


async def used(desk: Desk, start: Start, capability: str = "wire", *, rec_no: int = 2) -> bool:
    """Let a run begin a call that needs a grant; tell whether it might."""
    spend = {"kind": "tool", "call_id": f"c{rec_no}", "grant": capability, "limits": []}
    called = NewFact(kind="tool_called", data={"call_id": f"c{rec_no}"})
    recorded = await desk.work.record(start, rec_no=rec_no, facts=[called], spend=spend)
    assert recorded.refused in (None, "no_grant")
    return recorded.refused is None


async def begun(desk: Desk, thread: str | None = None, by: Principal = ME) -> Start:
    """Let a run begin that acts for somebody."""
    thread = thread or str(uuid4())
    await desk.send(thread, by=by)
    return await desk.begin(thread)


async def state(grants: PostgresGrants, grant: Grant) -> tuple[int, str]:
    """Return how often a grant was used, and what it is good for."""
    now = await grants.get(grant.id, by=OPERATOR)
    return now.used, now.status


async def test_uses_are_taken_until_there_are_none(desk: Desk, grants: PostgresGrants) -> None:
    grant = await granted(grants, uses=2, reason="why not")
    assert (grant.used, grant.uses, grant.status, grant.granted_by) == (0, 2, "usable", OPERATOR.id)
    start = await begun(desk)
    assert [await used(desk, start, rec_no=n) for n in (2, 3, 4)] == [True, True, False]
    assert await state(grants, grant) == (2, "used_up")
    facts = [frame.data for frame in await desk.facts.facts(start.thread, after=0, limit=100)]
    assert [fact for fact in facts if fact["fact"] == "grant_used"] == [
        {"fact": "grant_used", "grant": grant.id, "capability": "wire", "use": n, "of": 2,
         "granted_by": OPERATOR.id, "call_id": f"c{n + 1}"}
        for n in (1, 2)
    ]  # fmt: skip
    # What was refused has left nothing, the call's own fact included.
    assert [fact["fact"] for fact in facts].count("tool_called") == 2


async def test_a_record_that_is_repeated_takes_one_use(desk: Desk, grants: PostgresGrants) -> None:
    grant = await granted(grants, uses=2)
    start = await begun(desk)
    assert [await used(desk, start, rec_no=2) for _ in range(3)] == [True] * 3
    assert await state(grants, grant) == (1, "usable")


async def test_a_grant_is_for_whom_and_where_it_says(desk: Desk, grants: PostgresGrants) -> None:
    mine, theirs, elsewhere = await begun(desk), await begun(desk, by=FRIEND), await begun(desk)
    await granted(grants, principal=FRIEND.id)
    await granted(grants, "call")
    assert [await used(desk, start) for start in (mine, theirs)] == [False, True]
    await granted(grants, thread=mine.thread)
    assert [await used(desk, start) for start in (elsewhere, mine)] == [False, True]
    await granted(grants, thread=elsewhere.thread, principal=FRIEND.id)
    assert not await used(desk, elsewhere)


async def test_the_grant_that_ends_first_is_used_first(desk: Desk, grants: PostgresGrants) -> None:
    lasting = await granted(grants, uses=2)
    late = await granted(grants, expires_in=2 * HOUR)
    soon = await granted(grants, expires_in=HOUR)
    start = await begun(desk)
    order = []
    for number in (2, 3, 4):
        assert await used(desk, start, rec_no=number)
        order.append([(await state(grants, each))[0] for each in (soon, late, lasting)])
    assert order == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


async def test_what_has_expired_is_not_used(desk: Desk, grants: PostgresGrants, behind: Any) -> None:
    grant = await granted(grants, expires_in=HOUR)
    assert grant.expires_at == grant.created_at + HOUR
    await behind.execute("UPDATE grants SET expires_at = clock_timestamp()")
    assert not await used(desk, await begun(desk))
    assert await state(grants, grant) == (0, "expired")


async def test_what_is_revoked_is_not_used_and_the_first_word_counts(
    desk: Desk, grants: PostgresGrants
) -> None:
    grant, start = await granted(grants, uses=2), await begun(desk)
    assert await used(desk, start)
    revoked = await grants.revoke(grant.id, by=OPERATOR)
    assert (revoked.status, revoked.revoked_by, revoked.used) == ("revoked", OPERATOR.id, 1)
    assert revoked.revoked_at is not None
    other = Principal(id="ops2", workspace="home", roles=frozenset({"operator"}))
    assert await grants.revoke(grant.id, by=other) == revoked
    assert not await used(desk, start, rec_no=3)


async def test_a_use_waits_for_whoever_takes_the_last_one(
    desk: Desk, grants: PostgresGrants, behind: Any
) -> None:
    grant, start = await granted(grants), await begun(desk)
    for taken, expected in ((False, True), (True, False)):
        if taken:
            grant = await granted(grants)
        transaction = behind.transaction()
        await transaction.start()
        await behind.execute("UPDATE grants SET used = used + 1 WHERE id = $1", UUID(grant.id))
        waiting = asyncio.create_task(used(desk, start, rec_no=3 if taken else 2))
        await waits_or_ends(behind, waiting)
        assert not waiting.done()
        await (transaction.commit() if taken else transaction.rollback())
        assert await waiting is expected
        assert await state(grants, grant) == (1, "used_up")
    # What was taken here is on no log, which an audit would notice.
    await behind.execute("UPDATE grants SET used = 0 WHERE id = $1", UUID(grant.id))


async def test_a_use_that_waits_for_a_revocation_is_not_taken(
    desk: Desk, grants: PostgresGrants, behind: Any
) -> None:
    grant, start = await granted(grants), await begun(desk)
    async with behind.transaction():
        await behind.execute("UPDATE grants SET revoked_at = clock_timestamp(), revoked_by = 'ops'")
        waiting = asyncio.create_task(used(desk, start))
        await waits_or_ends(behind, waiting)
        assert not waiting.done()
    assert await waiting is False
    assert await state(grants, grant) == (0, "revoked")


async def test_grants_are_seen_by_whom_they_concern(desk: Desk, grants: PostgresGrants) -> None:
    thread = (await begun(desk)).thread
    made = {
        "everybody": await granted(grants),
        "friend": await granted(grants, principal=FRIEND.id),
        "thread": await granted(grants, thread=thread),
        "both": await granted(grants, thread=thread, principal=FRIEND.id),
        "other": await granted(grants, principal="other"),
    }
    sees = {
        ME: {"everybody", "thread", "both"},
        FRIEND: {"everybody", "friend", "both"},
        OPERATOR: set(made),
        STRANGER: set(),
        Principal(id=FRIEND.id, workspace="elsewhere"): set(),
    }
    for who, seen in sees.items():
        newest_first = [grant.id for name, grant in reversed(made.items()) if name in seen]
        assert [grant.id for grant in await grants.list(by=who, before=None, limit=100)] == newest_first
        for name, grant in made.items():
            if name in seen:
                assert await grants.get(grant.id, by=who) == grant
            else:
                with pytest.raises(NotFound):
                    await grants.get(grant.id, by=who)
    await desk.threads.set_member(thread, FRIEND.id, "read", by=ME)
    assert await grants.get(made["thread"].id, by=FRIEND) == made["thread"]
    page = await grants.list(by=ME, before=made["both"].id, limit=1)
    assert page == [made["thread"]]


async def test_other_workspaces_have_grants_of_their_own(desk: Desk, grants: PostgresGrants) -> None:
    theirs, start = await granted(grants, by=STRANGER), await begun(desk)
    assert not await used(desk, start)
    with pytest.raises(NotFound):
        await grants.revoke(theirs.id, by=OPERATOR)
    assert (await grants.get(theirs.id, by=STRANGER)).status == "usable"
    for thread in (start.thread, str(uuid4())):
        with pytest.raises(NotFound) as refused:
            await granted(grants, by=STRANGER, thread=thread)
        assert refused.value.data["what"] == "thread"


async def test_a_key_stands_for_one_grant(desk: Desk, grants: PostgresGrants) -> None:
    thread = (await begun(desk)).thread
    terms: dict[str, Any] = {
        "uses": 3,
        "principal": FRIEND.id,
        "thread": thread,
        "expires_in": timedelta(days=90, microseconds=1),
        "reason": "r",
    }
    first = await granted(grants, key="k", **terms)
    assert await granted(grants, key="k", **terms) == first
    changes = {"uses": 4, "principal": None, "thread": None, "expires_in": None, "reason": "s"}
    for name, value in changes.items():
        with pytest.raises(KeyConflict):
            await granted(grants, key="k", **{**terms, name: value})
    with pytest.raises(KeyConflict):
        await granted(grants, "call", key="k", **terms)
    # Somebody else's keys are their own.
    other = await granted(grants, key="k", by=STRANGER)
    assert other.id != first.id
    assert len(await grants.list(by=OPERATOR, before=None, limit=100)) == 1


async def test_the_usable_ones_have_a_bound(
    desk: Desk, grants: PostgresGrants, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GRANTS_MAX", 2)
    first, second = await granted(grants), await granted(grants, "call", key="k")
    with pytest.raises(GrantsFull) as refused:
        await granted(grants)
    assert refused.value.data["limit"] == 2
    # What is there already is found, and other workspaces have room of their own.
    assert await granted(grants, "call", key="k") == second
    await granted(grants, by=STRANGER)
    await grants.revoke(first.id, by=OPERATOR)
    third = await granted(grants, expires_in=HOUR)
    await behind.execute("UPDATE grants SET expires_at = clock_timestamp() WHERE id = $1", UUID(third.id))
    await granted(grants)
    assert await used(desk, await begun(desk))
    await granted(grants)
    with pytest.raises(GrantsFull):
        await granted(grants)


async def test_of_two_who_come_at_once_the_second_counts_the_first(
    desk: Desk, grants: PostgresGrants, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GRANTS_MAX", 1)
    await begun(desk)
    async with behind.transaction():
        told = await behind.fetchval(
            "SELECT outcome FROM create_grant_v1('home', 'ops', NULL, $1, 'wire', NULL, NULL, 1, '', NULL, 1)",
            uuid4(),
        )
        assert told == "ok"
        second = asyncio.create_task(granted(grants))
        await waits_or_ends(behind, second)
        # Who only works in the workspace does not wait.
        await begun(desk)
        assert not second.done()
    with pytest.raises(GrantsFull):
        await second


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capability", ""),
        ("capability", "x" * 201),
        ("capability", " wire"),
        ("uses", 0),
        ("uses", USES_MAX + 1),
        ("uses", True),
        ("uses", 1.0),
        ("principal", ""),
        ("principal", "system"),
        ("expires_in", timedelta(0)),
        ("expires_in", timedelta(days=3651)),
        ("expires_in", 5),
        ("reason", "x" * (REASON_CHARS_MAX + 1)),
        ("reason", "\x00"),
        ("reason", "\ud800"),
        ("reason", None),
    ],
)
def test_what_is_out_of_bounds_is_refused(field: str, value: Any) -> None:
    terms: dict[str, Any] = {
        "capability": "wire",
        "uses": USES_MAX,
        "principal": None,
        "thread": None,
        "expires_in": timedelta(days=3650),
        "reason": "x" * REASON_CHARS_MAX,
    }
    checked_grant(terms["capability"], **{name: terms[name] for name in terms if name != "capability"})
    terms[field] = value
    with pytest.raises(InvalidInput) as refused:
        checked_grant(terms.pop("capability"), **terms)
    assert refused.value.data["field"] == field


async def test_the_largest_grant_is_kept(grants: PostgresGrants) -> None:
    grant = await granted(grants, uses=USES_MAX, expires_in=timedelta(days=3650), reason="é" * 1000)
    assert (grant.uses, grant.status) == (USES_MAX, "usable")
