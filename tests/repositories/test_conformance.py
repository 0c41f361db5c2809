"""Both stores of run records do what the suite says, and the suite notices one that does not."""

import asyncio
from datetime import timedelta

import pytest

from tests.repositories.conformance import CHECKS, House
from tests.repositories.memory import MemoryRepository, Shelf
from threadhold.runner.decisions import Decision
from threadhold.runner.machine import RunStatus
from threadhold.runner.records import Principal
from threadhold.runner.repositories import Run, RunHistoryEntry, ThreadRecord
from threadhold.storage.pool import Database
from threadhold.storage.repositories import PostgresRepository
from threadhold.storage.requests import PostgresRequests
from threadhold.storage.work import PostgresWork


def in_postgres(database: Database, workspace: str) -> House:
    me = Principal(id="me", workspace=workspace)
    them = Principal(id="them", workspace=f"not {workspace}", roles=frozenset({"operator"}))

    def store_of(by: Principal) -> PostgresRepository:
        ttl = timedelta(minutes=5)
        return PostgresRepository(database, by=by, holder="h-000000000001", ttl=ttl, announce=lambda _: None)

    async def answer(run_id: str) -> None:
        run = await store_of(me).get(run_id)
        assert run is not None
        requests = PostgresRequests(database)
        await requests.answer(str(run.request_id), Decision.approve(), by=me, args_hash=None)

    return House(store_of(me), store_of(me), store_of(them), answer)


async def test_postgres(database: Database) -> None:
    # Each in a workspace of its own: a database for each would take most of the time.
    failed = []
    for name, check in CHECKS.items():
        try:
            await check(in_postgres(database, name))
        except Exception as error:
            error.add_note(f"while {name}")
            failed.append(error)
    if failed:
        raise ExceptionGroup("this store differs", failed)
    audit = PostgresWork(database, worker="w-000000000001", ttl=timedelta(seconds=15)).audit()
    assert await audit == []


def in_memory(kind: type[MemoryRepository] = MemoryRepository) -> House:
    shelf = Shelf()
    store, other = kind(shelf, workspace="home"), kind(shelf, workspace="home")

    async def answer(run_id: str) -> None:
        store.answer(run_id)

    return House(store, other, kind(shelf, workspace="elsewhere"), answer)


@pytest.mark.parametrize("name", CHECKS)
async def test_memory(name: str) -> None:
    await CHECKS[name](in_memory())


class Careless(MemoryRepository):
    """Compares before it waits, so that all racers find what they expect."""

    async def put_if_status(self, run: Run, expected: RunStatus) -> Run:
        if self._found(run.run_id).status is not expected:
            return await super().put_if_status(run, expected)
        await asyncio.sleep(0)
        shown = self._shelf.runs[run.run_id]
        return self._store(run.model_copy(update={"claim_id": shown.claim_id}), self._found(run.run_id))


class Greedy(MemoryRepository):
    """Creates over what is there."""

    async def create(self, run: Run) -> Run:
        self._shelf.runs.pop(run.run_id, None)
        self._shelf.threads.pop(run.thread_id, None)
        return await super().create(run)


class Lenient(MemoryRepository):
    """Takes any step."""

    async def put(self, run: Run) -> Run:
        stored = await self.get(run.run_id)
        return await super().put(run) if stored is None else self._store(run, stored)


class Shared(MemoryRepository):
    """Hands out what it keeps."""

    def _seen(self, run: Run | None) -> Run | None:
        return None if run is None or run.workspace != self._workspace else run


class Forgetful(MemoryRepository):
    """Adds to what it has read, however long ago that was."""

    async def record_history(self, run_id: str, entry: RunHistoryEntry) -> Run:
        run = self._found(run_id)
        await asyncio.sleep(0)
        run.add(entry)
        return self._store(run, self._found(run_id))


class Open(MemoryRepository):
    """Shows everything to everybody."""

    async def get(self, run_id: str) -> Run | None:
        found = self._shelf.runs.get(run_id)
        return None if found is None else found.model_copy(deep=True)


class Trusting(MemoryRepository):
    """Does not ask whose claim it is."""

    async def put(self, run: Run) -> Run:
        stored = await self.get(run.run_id)
        if stored is None:
            return await super().put(run)
        return await super().put(run.model_copy(update={"claim_id": stored.claim_id}))


class Blind(MemoryRepository):
    """Merges threads whatever they are for."""

    def _thread(self, id: str, agent: str, version: str | None, deployment: str | None) -> ThreadRecord:
        known = self._shelf.threads.get(id)
        return (
            super()._thread(id, known.agent, None, None) if known else super()._thread(id, agent, None, None)
        )


BROKEN: dict[type[MemoryRepository], str] = {
    Careless: "of_racers_one_wins",
    Greedy: "an_id_is_taken_once",
    Lenient: "the_table_is_kept",
    Shared: "what_is_returned_is_a_snapshot",
    Forgetful: "what_is_added_at_once_is_all_there",
    Open: "workspaces_know_nothing_of_each_other",
    Trusting: "a_holder_of_before_writes_nothing",
    Blind: "threads_of_another_identity_are_not_merged",
}


@pytest.mark.parametrize(("kind", "noticed_by"), BROKEN.items())
async def test_a_broken_store_is_noticed(kind: type[MemoryRepository], noticed_by: str) -> None:
    failed = []
    for name, check in CHECKS.items():
        try:
            await check(in_memory(kind))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
                raise
            failed.append(name)
    assert noticed_by in failed
    # It is one thing that is broken, and not all.
    assert len(failed) < len(CHECKS) / 2
