"""Threads and where a watch of them begins."""

import builtins
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from threadhold.fanout.cursor import N_MAX, Position
from threadhold.fanout.frame import Frame
from threadhold.fanout.ports import Head
from threadhold.runner.errors import (
    Forbidden,
    InvalidInput,
    MembersFull,
    NotFound,
    OwnersOnly,
    ThreadArchived,
    ThreadBusy,
    ThreadChanged,
    ThreadExists,
    ThreadMismatch,
)
from threadhold.runner.memory import MemoryBinding, binding_data, bindings_of
from threadhold.runner.records import (
    MEMBERS_MAX,
    REFS_MAX,
    Access,
    Member,
    Principal,
    Thread,
    ThreadStatus,
)
from threadhold.storage.ids import as_uuid, new_id, thread_id_for_key
from threadhold.storage.pool import Database


def thread_of(row: Any) -> Thread:
    """Return the thread that a row tells of."""
    return Thread(
        id=str(row["id"]),
        workspace=row["workspace"],
        owner=row["owner"],
        agent=row["agent"],
        title=row["title"],
        metadata=json.loads(row["metadata"]),
        state=row["state"],
        status=row["status"],
        current_run=str(row["current_run"]) if row["current_run"] else None,
        seq=row["log_seq"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        execution=str(row["execution"]) if row["execution"] else None,
        participants=(row["agent"], *row["participants"]),
        memory=bindings_of(json.loads(row["memory"])),
        state_refs=tuple(row["state_refs"]),
    )


def _member(principal: str, row: Any) -> Member:
    return Member(
        principal=principal, access=row["access"], added_by=row["added_by"], added_at=row["added_at"]
    )


def _check_shared(outcome: str, thread: str, verb: str) -> None:
    """Raise what a refusal to change a thread's members means."""
    if outcome == "not_found":
        raise NotFound("thread", thread)
    if outcome == "forbidden":
        raise OwnersOnly(verb)


class PostgresThreads:
    """The `ThreadStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def new_thread_id(self, *, by: Principal, key: str | None) -> str:
        """Return a fresh id, or the one that belongs to this principal's key."""
        return str(new_id() if key is None else thread_id_for_key(by.workspace, by.id, key))

    async def create(
        self,
        thread: str,
        *,
        agent: str,
        title: str | None,
        metadata: dict[str, Any],
        execution: str | None = None,
        by: Principal,
    ) -> Thread:
        """Make a thread; the same call again returns the same thread."""
        id = as_uuid(thread, "thread")
        belongs = as_uuid(execution, "execution") if execution else None
        await self._database.run(
            "create_thread", id, by.workspace, by.id, agent, title, json.dumps(metadata), belongs
        )
        try:
            made = await self.get(thread, by=by)
        except NotFound:
            # The id belongs to a thread of somebody else, which must not be told apart from any other clash.
            raise ThreadExists(thread) from None
        if made.agent != agent or (execution is not None and made.execution != execution):
            raise ThreadExists(thread)
        return made

    async def get(self, thread: str, *, by: Principal) -> Thread:
        """Return a thread."""
        id = as_uuid(thread, "thread")
        row = await self._database.row("get_thread", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("thread", thread)
        return thread_of(row)

    async def update(
        self,
        thread: str,
        *,
        title: str | None,
        metadata: dict[str, Any] | None,
        status: ThreadStatus | None,
        unchanged_since: datetime | None,
        by: Principal,
    ) -> Thread:
        """Change what people see of a thread and return it."""
        row = await self._database.row(
            "update_thread",
            by.workspace,
            by.id,
            sorted(by.roles),
            as_uuid(thread, "thread"),
            title,
            None if metadata is None else json.dumps(metadata),
            status,
            unchanged_since,
        )
        match row[0]:
            case "not_found":
                raise NotFound("thread", thread)
            case "forbidden":
                raise Forbidden("change it")
            case "thread_changed":
                raise ThreadChanged(thread)
            case "thread_busy":
                raise ThreadBusy(None)
            case "thread_archived":
                raise ThreadArchived(thread)
        return await self.get(thread, by=by)

    async def resolve(
        self,
        thread: str,
        *,
        agent: str,
        participants: Sequence[str],
        memory: Sequence[MemoryBinding],
        state_refs: Sequence[str],
        status: ThreadStatus | None,
        by: Principal,
    ) -> tuple[Thread, int]:
        """Find a thread or make it, and add to what it is about, under its lock."""
        row = await self._database.row(
            "resolve",
            by.workspace,
            by.id,
            sorted(by.roles),
            as_uuid(thread, "thread"),
            agent,
            list(participants),
            json.dumps(binding_data(memory)),
            list(state_refs),
            status,
            REFS_MAX,
        )
        match row["outcome"]:
            case "not_found":
                raise NotFound("thread", thread)
            case "forbidden":
                raise Forbidden("add to it")
            case "thread_mismatch":
                raise ThreadMismatch(thread)
            case "thread_archived":
                raise ThreadArchived(thread)
            case "thread_busy":
                raise ThreadBusy(None)
            case "full":
                field = row["full_of"]
                raise InvalidInput(f"a thread has at most {REFS_MAX} {field}", field=field)
        return await self.get(thread, by=by), row["seq"]

    async def list(self, *, by: Principal, before: str | None, limit: int) -> list[Thread]:
        """Return the principal's threads by id, the highest first."""
        after = as_uuid(before, "thread") if before else None
        rows = await self._database.rows("list_threads", by.workspace, by.id, list(by.roles), after, limit)
        return [thread_of(row) for row in rows]

    async def members(self, thread: str, *, by: Principal) -> builtins.list[Member]:
        """Return who may see a thread beside its owner, by name."""
        id = as_uuid(thread, "thread")
        rows = await self._database.rows("list_members", id, by.workspace, by.id, list(by.roles))
        if not rows:
            raise NotFound("thread", thread)
        return [_member(row["principal"], row) for row in rows if row["principal"] is not None]

    async def set_member(self, thread: str, member: str, access: Access, *, by: Principal) -> Member:
        """Let somebody in, or change what they may do, under the thread's lock."""
        row = await self._database.row(
            "set_member",
            by.workspace,
            by.id,
            sorted(by.roles),
            as_uuid(thread, "thread"),
            member,
            access,
            MEMBERS_MAX,
        )
        match row["outcome"]:
            case "owner":
                raise InvalidInput(
                    "this is the thread's owner, who may do everything already", field="member"
                )
            case "full":
                raise MembersFull(MEMBERS_MAX)
        _check_shared(row["outcome"], thread, "let others in")
        return _member(member, row)

    async def remove_member(self, thread: str, member: str, *, by: Principal) -> None:
        """Let somebody out, under the thread's lock."""
        id = as_uuid(thread, "thread")
        row = await self._database.row("remove_member", by.workspace, by.id, sorted(by.roles), id, member)
        _check_shared(row[0], thread, "remove members")

    async def start_of_watch(self, thread: str, *, by: Principal, after: Literal["head"] | None) -> Position:
        """Return the head of the thread, or the start of its current or last run."""
        id = as_uuid(thread, "thread")
        row = await self._database.row("open_watch", id, by.workspace, by.id, list(by.roles))
        if row is None:
            raise NotFound("thread", thread)
        if after == "head":
            return Position(seq=row["log_seq"], fence=row["fence"], n=N_MAX)
        if row["first_seq"] is None:
            return Position()
        return Position(seq=row["first_seq"], fence=row["fence_before"], n=N_MAX)


class PostgresFacts:
    """The `FactLog` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def facts(self, thread: str, *, after: int, limit: int) -> list[Frame]:
        """Return the next facts of a thread as frames."""
        rows = await self._database.rows("facts_after", UUID(thread), after, limit)
        return [
            Frame(
                thread=thread,
                run=str(row["run_id"]) if row["run_id"] else None,
                fence=row["fence"],
                n=0,
                seq=row["seq"],
                kind="fact",
                at=row["at"].isoformat(),
                data={"fact": row["kind"], **json.loads(row["data"])},
                admission=json.loads(row["admission"] or "null"),
            )
            for row in rows
        ]

    async def heads(self, threads: Sequence[str]) -> list[Head]:
        """Return where these threads stand."""
        rows = await self._database.rows("heads", [UUID(thread) for thread in threads])
        return [
            Head(thread=str(row["id"]), seq=row["log_seq"], fence=row["fence"], state=row["state"])
            for row in rows
        ]
