"""How claims are kept and lost: renewals, the guard after a start of the database, hints, and the cause of a lapse."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from tests.storage.conftest import W1, W2, Desk
from tests.support.servers import Stack
from threadhold.claims import Claim
from threadhold.runner.records import Start
from threadhold.storage.claims import PostgresHolders, PostgresRenewer
from threadhold.storage.pool import Database, connect

TTL = timedelta(seconds=15)
EXPIRE = "UPDATE threadhold.claims SET expires_at = clock_timestamp() - make_interval(secs => $1)"
# As if the database had started at another time than it was last seen to; whoever looks next sees a change.
# So long before its end, a claim of 15 s was renewed last almost four seconds ago.
SILENT = -11.2
RESTART = "UPDATE threadhold.database_start SET started_at = started_at - interval '1 h'"
PROMOTE = "UPDATE threadhold.database_start SET timeline = timeline + 1"
UP_SINCE = "UPDATE threadhold.database_start SET since = clock_timestamp() - make_interval(secs => $1)"
SINCE = "SELECT since FROM threadhold.database_start"
SESSIONS = """
    SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
     WHERE l.locktype = 'advisory' AND (l.classid::bigint << 32) | l.objid::bigint = threadhold.hint_key($1)"""
CUT = f"SELECT pg_terminate_backend(s.pid, 5000) FROM ({SESSIONS}) AS s"


@pytest.fixture
async def renewer(stack: Stack) -> AsyncIterator[PostgresRenewer]:
    """The first worker's renewer."""
    made = PostgresRenewer(stack.database_url, schema="threadhold", worker=W1, ttl=TTL)
    yield made
    await made.reset()


@pytest.fixture
async def holders(stack: Stack) -> AsyncIterator[PostgresHolders]:
    """The second worker's view of who lives."""
    made = PostgresHolders(stack.database_url, schema="threadhold", worker=W2)
    yield made
    await made.aclose()


async def change(database: Database, statement: str, *args: object) -> None:
    """Change what no function of ours changes."""
    await database._pool.execute(statement, *args)


async def held(desk: Desk, thread: str, *, hinted: bool = False) -> Start:
    """Hold a thread as the first worker, on a database that has been up for long."""
    await desk.work.sweep(limit=10)
    await change(desk.database, UP_SINCE, 3600.0)
    await desk.send(thread)
    start, _ = await desk.work.claim(thread, agents={"a": 0}, start_key=f"{thread[:-1]}0", hinted=hinted)
    assert start is not None
    await desk.work.register(agents=["a"], capacity=1)
    await desk.work.record(start, rec_no=1, facts=[])
    return start


async def cause(desk: Desk, thread: str) -> str | None:
    """Sweep as the second worker, and return why the first one's claim was taken, if it was."""
    await desk.other.sweep(limit=10)
    closed = [
        frame.data
        for frame in await desk.facts.facts(thread, after=0, limit=100)
        if frame.data["fact"] == "attempt_closed"
    ]
    return closed[-1]["cause"] if closed else None


def claim_of(start: Start) -> Claim:
    """Return the claim that a start came with."""
    return Claim(thread=start.thread, claim_id=start.claim_id, fence=start.fence)


async def test_renewed_claim_is_not_taken_and_a_lapsed_one_is(
    desk: Desk, thread: str, renewer: PostgresRenewer
) -> None:
    start = await held(desk, thread)
    await change(desk.database, EXPIRE, 1.0)
    [renewal] = await renewer.renew([claim_of(start)], blocked_s=0.0)
    assert (renewal.claim_id, renewal.result) == (start.claim_id, "renewed")
    assert await cause(desk, thread) is None
    await change(desk.database, EXPIRE, 0.0)
    assert await cause(desk, thread) == "lost claim"
    [renewal] = await renewer.renew([claim_of(start)], blocked_s=0.0)
    assert renewal.result == "lost"


async def test_lapse_after_the_loop_was_blocked_is_said_to_be_that(
    desk: Desk, thread: str, renewer: PostgresRenewer
) -> None:
    start = await held(desk, thread)
    await renewer.renew([claim_of(start)], blocked_s=5.5)
    await change(desk.database, EXPIRE, 0.0)
    assert await cause(desk, thread) == "loop blocked"


async def test_loop_that_goes_on_again_is_not_blamed(
    desk: Desk, thread: str, renewer: PostgresRenewer
) -> None:
    start = await held(desk, thread)
    for blocked_s in (30.0, 0.4):
        await renewer.renew([claim_of(start)], blocked_s=blocked_s)
    await change(desk.database, EXPIRE, 0.0)
    assert await cause(desk, thread) == "lost claim"


@pytest.mark.parametrize("event", [RESTART, PROMOTE])
async def test_no_lapse_is_taken_for_one_ttl_after_the_database_came_up_or_was_promoted(
    desk: Desk, thread: str, event: str
) -> None:
    await held(desk, thread)
    await change(desk.database, EXPIRE, 1.0)
    await change(desk.database, event)
    assert await cause(desk, thread) is None
    # Neither by the sweep nor by whoever would start the next run.
    assert await desk.claim(thread, work=desk.other) is None
    await change(desk.database, UP_SINCE, 14.0)
    assert await cause(desk, thread) is None
    await change(desk.database, UP_SINCE, 15.1)
    assert await cause(desk, thread) == "storage"


async def test_start_of_the_database_is_noted_when_it_happens_not_at_the_next_lapse(desk: Desk) -> None:
    await desk.work.sweep(limit=10)
    await change(desk.database, UP_SINCE, 3600.0)
    before = await desk.database._pool.fetchval(SINCE)
    await desk.work.sweep(limit=10)
    assert await desk.database._pool.fetchval(SINCE) == before
    await change(desk.database, RESTART)
    await desk.work.sweep(limit=10)
    noted = await desk.database._pool.fetchval(SINCE)
    assert noted > before
    await desk.work.sweep(limit=10)
    assert await desk.database._pool.fetchval(SINCE) == noted


async def test_claim_renewed_since_the_database_came_up_lapsed_for_another_reason(
    desk: Desk, thread: str
) -> None:
    await held(desk, thread)
    await change(desk.database, UP_SINCE, 16.0)
    await change(desk.database, EXPIRE, 0.5)
    assert await cause(desk, thread) == "lost claim"


async def test_disowned_claim_is_taken_at_once_even_just_after_a_start(desk: Desk, thread: str) -> None:
    await held(desk, thread)
    await change(desk.database, RESTART)
    assert await cause(desk, thread) is None
    assert await desk.work.disown("w1") == 1
    assert await cause(desk, thread) == "killed"


async def test_holder_is_present_while_its_session_lasts(
    desk: Desk, thread: str, renewer: PostgresRenewer, holders: PostgresHolders
) -> None:
    await held(desk, thread, hinted=True)
    assert await holders.ask() == {W1: False}
    await renewer.renew([], blocked_s=0.0)
    assert await holders.ask() == {W1: True}
    await renewer.reset()
    await change(desk.database, CUT, W1)
    assert await holders.ask() == {W1: False}


async def test_claim_of_a_dead_holder_is_taken_before_it_lapses(desk: Desk, thread: str) -> None:
    await held(desk, thread, hinted=True)
    await change(desk.database, EXPIRE, SILENT)
    await desk.other.sweep(limit=10)
    assert await cause(desk, thread) is None
    [nudge] = await desk.other.sweep(limit=10, dead=[W1])
    assert nudge.thread == thread
    assert await cause(desk, thread) == "killed"


async def test_holder_that_shows_itself_again_in_time_keeps_its_claim(
    desk: Desk, thread: str, renewer: PostgresRenewer
) -> None:
    await held(desk, thread, hinted=True)
    await change(desk.database, EXPIRE, SILENT)
    await renewer.renew([], blocked_s=0.0)
    assert await desk.other.sweep(limit=10, dead=[W1]) == []


async def test_claim_that_was_renewed_just_now_is_nobodys_whatever_its_lock_looks_like(
    desk: Desk, thread: str
) -> None:
    await held(desk, thread, hinted=True)
    await change(desk.database, EXPIRE, SILENT - 1)
    assert await desk.other.sweep(limit=10, dead=[W1]) == []
    await change(desk.database, EXPIRE, SILENT)
    assert len(await desk.other.sweep(limit=10, dead=[W1])) == 1


async def test_only_hinted_claims_of_that_very_holder_are_taken_early(desk: Desk, thread: str) -> None:
    await held(desk, thread)
    assert await desk.other.sweep(limit=10, dead=[W1]) == []
    assert await desk.other._lapse(UUID(thread), dead=W1) is None
    await change(desk.database, "UPDATE threadhold.claims SET hinted = true")
    assert await desk.other.sweep(limit=10, dead=[W2]) == []
    assert await desk.other._lapse(UUID(thread), dead=W2) is None


async def test_nobody_is_taken_for_dead_just_after_a_start_of_the_database(desk: Desk, thread: str) -> None:
    await held(desk, thread, hinted=True)
    await change(desk.database, EXPIRE, SILENT)
    await change(desk.database, RESTART)
    assert await desk.other.sweep(limit=10, dead=[W1]) == []
    await change(desk.database, UP_SINCE, 15.1)
    assert len(await desk.other.sweep(limit=10, dead=[W1])) == 1


async def test_renewal_after_its_session_was_cut_takes_the_lock_again(
    desk: Desk, renewer: PostgresRenewer
) -> None:
    await renewer.renew([], blocked_s=0.0)
    await change(desk.database, CUT, W1)
    with pytest.raises(Exception, match="does not answer"):
        await renewer.prove()
    await renewer.reset()
    await renewer.renew([], blocked_s=0.0)
    assert renewer.hinted
    assert len(await desk.database._pool.fetch(SESSIONS, W1)) == 1


async def test_cut_session_of_the_observer_is_a_failure_once(
    desk: Desk, thread: str, holders: PostgresHolders
) -> None:
    await held(desk, thread, hinted=True)
    assert await holders.ask() == {W1: False}
    await change(desk.database, CUT, W2)
    with pytest.raises(Exception, match="does not answer"):
        await holders.ask()
    assert await holders.ask() == {W1: False}


async def test_connection_that_is_not_a_session_of_its_own_is_no_hint(
    renewer: PostgresRenewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pooled:
        """A connection through a pooler, which tells of a session of its own making."""

        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def get_server_pid(self) -> int:
            return 1

    async def pooled(url: str) -> object:
        return Pooled(await connect(url))

    await renewer.renew([], blocked_s=0.0)
    assert renewer.hinted
    await renewer.reset()
    monkeypatch.setattr("threadhold.storage.claims.connect", pooled)
    await renewer.renew([], blocked_s=0.0)
    assert not renewer.hinted
