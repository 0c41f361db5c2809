"""One thread in a real database: every transaction by its name, and a look at what it left."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from tests.model import state
from tests.model.people import REQUESTER
from threadhold.storage.sql import parse, statements

TTL = timedelta(hours=1)
SOON = timedelta(seconds=1)
ME = "me"
WORKERS = ("w1-000000000001", "w2-000000000002")
ADMITTED = json.dumps({"interface": "python", "environment": "development"})
ARGS_HASH = hashlib.sha256(b"{}").hexdigest()


@cache
def sql(schema: str) -> dict[str, str]:
    """Return the product's named statements, and those of the tests, for one schema."""
    own = parse((Path(__file__).parent / "looks.sql").read_text())
    return statements(schema) | {name: text.replace("{schema}", schema) for name, text in own.items()}


def uuids(values: list[Any] | None) -> list[UUID]:
    """Return ids as JSON carries them as ids."""
    return [UUID(value) for value in values or ()]


# Times are told beside what happened.
MEASURED: Final = frozenset({"lasted_s", "waited_s"})


@dataclass
class Bench:
    """Calls transactions of one thread; each returns the row that the database answered.

    Args:
        schema: where the functions under test live.
    """

    schema: str
    thread: UUID = field(default_factory=uuid4)
    look: dict[str, Any] = field(default_factory=dict)

    async def row(self, connection: Any, name: str, *args: Any) -> dict[str, Any]:
        """Run a named statement and return its first row, empty if there is none."""
        found = await connection.fetchrow(sql(self.schema)[name], *args)
        return {name: value for name, value in (found or {}).items() if name not in MEASURED}

    async def run(self, connection: Any, name: str, *args: Any) -> None:
        """Run a named statement for what it changes."""
        await connection.execute(sql(self.schema)[name], *args)

    # People

    async def send(
        self, connection: Any, key: str, on_busy: str = "steer", body: str = "hello"
    ) -> dict[str, Any]:
        """Send a message; the first one makes the thread."""
        hash = hashlib.sha256(body.encode()).digest()
        ids = (uuid4(), uuid4())
        args: tuple[Any, ...] = (
            "home",
            ME,
            [],
            self.thread,
            "a",
            key,
            hash,
            body,
            *ids,
            on_busy,
            100,
            ADMITTED,
        )
        return await self.row(connection, "send", *args)

    async def stop(
        self, connection: Any, *, run: UUID | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Stop a run, or whatever runs on the thread."""
        return await self.row(connection, "stop", "home", ME, [], self.thread, run, key, uuid4())

    async def answer(
        self, connection: Any, request: UUID, kind: str, by: str = "other", hash: str = ARGS_HASH
    ) -> dict[str, Any]:
        """Answer a request."""
        decision = json.dumps({"kind": kind})
        return await self.row(connection, "answer", "home", by, [], request, decision, bytes.fromhex(hash))

    async def rename(self, connection: Any, title: str) -> dict[str, Any]:
        """Give the thread a title."""
        args: tuple[Any, ...] = ("home", ME, [], self.thread, title, None, None, None)
        return await self.row(connection, "update_thread", *args)

    async def archive(self, connection: Any) -> dict[str, Any]:
        """Put the thread away."""
        args: tuple[Any, ...] = ("home", ME, [], self.thread, None, None, "archived", None)
        return await self.row(connection, "update_thread", *args)

    async def replay(self, connection: Any, run: UUID) -> dict[str, Any]:
        """Run an ended run again from the thread's first chunk."""
        return await self.row(connection, "replay", "home", ME, [], run, 1, None, uuid4(), ADMITTED)

    # Workers

    async def claim(
        self,
        connection: Any,
        worker: str,
        key: UUID,
        *,
        agents: tuple[str, ...] = ("a",),
        retries: int = 0,
        hinted: bool = False,
    ) -> dict[str, Any]:
        """Take the thread and start its run."""
        args = (self.thread, list(agents), [retries for _ in agents], worker, key, TTL, hinted, uuid4())
        return await self.row(connection, "claim", *args)

    async def hold(self, connection: Any, worker: str, key: UUID) -> dict[str, Any]:
        """Hold the thread for code of one's own."""
        args: tuple[Any, ...] = ("home", ME, [], self.thread, worker, key, TTL, uuid4(), uuid4(), ADMITTED)
        return await self.row(connection, "hold", *args)

    async def record(self, connection: Any, claim: UUID, number: int, seqs: list[int]) -> dict[str, Any]:
        """Record a step, with the messages that it shows."""
        facts = json.dumps([{"kind": "step", "data": {"by": str(claim)}}])
        shown = json.dumps([{"shown": seqs}]) if seqs else None
        return await self.row(
            connection, "record", self.thread, claim, number, facts, None, seqs, shown, None
        )

    async def end(self, connection: Any, run: UUID, claim: UUID, status: str) -> dict[str, Any]:
        """End a run."""
        reason = {"failed": "error", "stopped": "person"}.get(status)
        args = (self.thread, run, claim, status, reason, None, None, "[]", None, "{}", uuid4())
        return await self.row(connection, "end_run", *args)

    async def pause(
        self, connection: Any, run: UUID, claim: UUID, asked: tuple[state.Request, ...], first: int = 0
    ) -> dict[str, Any]:
        """Pause with requests; `first` numbers them in the order in which they are looked at."""
        requests = [self._request(q, first + i) for i, q in enumerate(asked)]
        return await self.row(connection, "pause", self.thread, run, claim, json.dumps(requests), "[]", None)

    def _request(self, q: state.Request, number: int) -> dict[str, Any]:
        return {
            "id": str(uuid4()),
            "kind": q.kind,
            "call_id": f"call-{number:03}",
            "tool": "t",
            "args": {},
            "hash": ARGS_HASH,
            "other_only": q.other_only,
            "approvers": None,
            "expires_in_s": None if q.expires == state.NEVER else 3600,
            "metadata": {},
        }

    async def hand_over(self, connection: Any, run: UUID, claim: UUID) -> dict[str, Any]:
        """Let another worker go on."""
        return await self.row(
            connection, "hand_over", self.thread, run, claim, "[]", None, uuid4(), None, SOON
        )

    async def release(self, connection: Any, claim: UUID) -> dict[str, Any]:
        """Give the claim up."""
        return await self.row(connection, "release", self.thread, claim, "drain", uuid4())

    async def partial(self, connection: Any, claim: UUID) -> dict[str, Any]:
        """Keep the text in progress."""
        return await self.row(connection, "partial", self.thread, claim, "{}")

    async def ask_executor(self, connection: Any, claim: UUID) -> dict[str, Any]:
        """Ask for a call that an executor is to carry out."""
        args = (self.thread, claim, uuid4(), WORKERS[0], "c1", "add", "lab", "{}", "{}", TTL)
        return await self.row(connection, "remote_ask", *args)

    async def renew(self, connection: Any, worker: str, claim: UUID) -> dict[str, Any]:
        """Renew one claim."""
        return await self.row(connection, "renew", worker, [self.thread], [claim], TTL, 0.0)

    async def lapse(self, connection: Any, dead: str | None = None) -> dict[str, Any]:
        """Sweep the thread."""
        return await self.row(connection, "lapse", self.thread, uuid4(), dead)

    async def expire(self, connection: Any) -> dict[str, Any]:
        """Deny what has expired."""
        return await self.row(connection, "expire", self.thread)

    async def audit(self, connection: Any) -> list[Any]:
        """Return the broken invariants of the whole schema."""
        return list(await connection.fetch(sql(self.schema)["audit"], None))

    # What is there

    async def see(self, connection: Any) -> state.Db:
        """Look at the thread, and return it as the machine's value. The proof's own notes are left at nothing."""
        text = (await self.row(connection, "look", self.thread)).get("json_build_object")
        self.look = json.loads(text) if text else {}
        return value_of(self.look)

    def runs(self) -> list[UUID]:
        """Return the thread's runs as they were last seen."""
        return uuids([run["id"] for run in self.look.get("runs") or ()])

    def requests(self) -> list[UUID]:
        """Return the thread's requests as they were last seen."""
        return uuids([q["id"] for q in self.look.get("requests") or ()])

    def tokens(self) -> list[UUID]:
        """Return the claims of all starts as they were last seen, the first start first."""
        return uuids(self.look.get("tokens"))

    def names(self) -> dict[UUID, str]:
        """Return what each id stands for, so that two threads can be compared."""
        groups = {
            "run": self.runs(),
            "request": self.requests(),
            "claim": self.tokens(),
            "thread": [self.thread],
        }
        groups["message"] = uuids([m["id"] for m in self.look.get("inbox") or ()])
        return {id: f"{what} {n}" for what, ids in groups.items() for n, id in enumerate(ids)}


def value_of(look: Mapping[str, Any]) -> state.Db:
    """Return what the database holds as the machine's value."""
    if not look:
        return state.Db()
    runs, tokens = look["runs"] or [], look["tokens"] or []
    place: dict[str | None, int] = {run["id"]: n for n, run in enumerate(runs)} | {None: state.NONE}
    token: dict[str | None, int] = {id: n + 1 for n, id in enumerate(tokens)} | {None: 0}
    return state.Db(
        cur=look["cur"] - 1 if look["cur"] else state.NONE,
        claim=token[look["claim"]],
        rec=look["rec"] if look["claim"] else 0,
        lease=state.Lease(look["phase"]) if look["phase"] else None,
        runs=tuple(_run(run, token) for run in runs),
        inbox=tuple(_message(n, m, place) for n, m in enumerate(look["inbox"] or ())),
        requests=tuple(_request(q, place) for q in look["requests"] or ()),
        stops=tuple((int(key), place[run]) for key, run in look["stops"] or ()),
    )


def _run(run: Mapping[str, Any], token: Mapping[str | None, int]) -> state.Run:
    attempts = tuple((token[claim], outcome or "") for claim, outcome in run["attempts"] or ())
    stopped = run["status"] == state.STOPPED
    return state.Run(
        status=run["status"],
        reason="stopped" if stopped else run["reason"] or "",
        cut=state.NONE if run["cut"] is None else run["cut"],
        cut_next=state.NONE if run["cut_next"] is None else run["cut_next"],
        token=attempts[-1][0] if attempts else 0,
        unacked=run["unacked"],
        retried=run["retried"],
        direct=run["kind"] == "direct",
        attempts=attempts,
    )


def _message(n: int, m: Mapping[str, Any], place: Mapping[str | None, int]) -> state.Message:
    return state.Message(
        key=n,
        mode=m["mode"],
        disposition=m["disposition"],
        for_run=place[m["for"]],
        state=m["state"],
        run=place[m["run"]],
        reason=m["reason"] or "",
    )


def _request(q: Mapping[str, Any], place: Mapping[str | None, int]) -> state.Request:
    answer = q["answer"] or {}
    by_text = "value" in answer or answer.get("reason") not in (None, "expired")
    said = "text" if by_text else "expired" if "reason" in answer else answer.get("kind", "")
    return state.Request(
        run=place[q["run"]],
        kind=q["kind"],
        other_only=q["other_only"],
        expires=q["expires"],
        status=q["status"],
        by=REQUESTER if q["by"] == ME else q["by"] or "",
        answer=said,
    )


def comparable(db: state.Db) -> state.Db:
    """Return a value of the machine without what only the machine knows."""
    return db._replace(
        rec=db.rec if db.claim else 0,
        lease=db.lease and state.Lease(db.lease.phase),
        runs=tuple(r._replace(key=0, ends=0, ran=0) for r in db.runs),
        inbox=tuple(m._replace(key=n, kept=False) for n, m in enumerate(db.inbox)),
        requests=tuple(q._replace(answers=0) for q in db.requests),
        stops=tuple(sorted(db.stops)),
        quiet=False,
        partial=False,
        loose=False,
    )
