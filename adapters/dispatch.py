"""Dispatch over arq: a job says "look at thread X". It is short, carries no state of the run, and may come twice.

arq's own queue stays as it is. What is added: a job is enqueued in one round trip together with a token in its agent's
wake list, so that exactly one idle worker that has the agent wakes at once; and workers claim jobs in one round trip.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Protocol, cast
from uuid import uuid4

import structlog
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix as in_progress_key
from arq.constants import job_key_prefix as job_key
from arq.jobs import serialize_job
from arq.utils import timestamp_ms
from arq.worker import Worker as ArqWorker
from arq.worker import func

log = structlog.get_logger(__name__)

POLL_S: Final = 1.0
# A job that nobody took by then is forgotten; its run is found in Postgres by whoever has a free slot.
JOB_EXPIRES_MS: Final = 60_000
WAKE_TOKENS_MAX: Final = 10_000
JOB_TIMEOUT_S: Final = 30
JOBS_AT_ONCE: Final = 64
RESTART_FIRST_S: Final = 0.1
RESTART_MAX_S: Final = 2.0

_ENQUEUE: Final = """
redis.call('PSETEX', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[4])
redis.call('RPUSH', KEYS[3], ARGV[4])
redis.call('LTRIM', KEYS[3], -tonumber(ARGV[5]), -1)
redis.call('PEXPIRE', KEYS[3], ARGV[1])
"""
_CLAIM: Final = """
local score = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not score or tonumber(score) > tonumber(ARGV[2]) then return false end
if not redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[3]) then return false end
return score
"""


def _dumps(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _loads(data: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(data)
    return value


class Attending(Protocol):
    """Who is woken: a worker, for threads of its agents, or an executor, for calls of its queue."""

    @property
    def names(self) -> Sequence[str]:
        """Of which agents, or queues, jobs are for it."""
        ...

    @property
    def free_slots(self) -> int:
        """How many more it may take now."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether it takes no more, for good."""
        ...

    async def slot(self) -> None:
        """Return when there is a free slot."""
        ...

    async def attend(self, id: str) -> bool:
        """Look at what a job names."""
        ...


class JobQueue:
    """The queue of one stack.

    Args:
        redis: the client; JSON goes through it, never pickle.
        prefix: sets this stack's keys apart.
    """

    def __init__(self, redis: ArqRedis, *, prefix: str) -> None:
        self.redis = redis
        self.name = f"{prefix}queue"
        self._prefix = prefix
        self._enqueue = redis.register_script(_ENQUEUE)

    async def enqueue(self, *, thread: str, agent: str, run: str) -> None:
        """Ask one worker that has the agent to look at a thread.

        Raises:
            redis.exceptions.RedisError: when Redis is away.
        """
        now = timestamp_ms()
        id = f"{self._prefix}{agent}/{run}/{uuid4().hex[:12]}"
        job = serialize_job("attend", (thread,), {}, None, now, serializer=_dumps)
        keys = [job_key + id, self.name, self.wake_list(agent)]
        await self._enqueue(keys=keys, args=[JOB_EXPIRES_MS, job, now, id, WAKE_TOKENS_MAX])

    def wake_list(self, agent: str) -> str:
        """Return the key of the list that workers with this agent wait at."""
        return f"{self._prefix}wake:{agent}"

    def agent_of(self, job_id: str) -> str:
        """Return the agent that a job is for."""
        return job_id[len(self._prefix) :].partition("/")[0]


class Dispatcher(ArqWorker):
    """An arq worker whose jobs hand threads to our worker; woken by tokens, with arq's poll as the safety net."""

    def __init__(self, worker: Attending, queue: JobQueue) -> None:
        super().__init__(
            functions=[func(_attend, name="attend")],
            queue_name=queue.name,
            redis_pool=queue.redis,
            handle_signals=False,
            max_jobs=JOBS_AT_ONCE,
            job_timeout=JOB_TIMEOUT_S,
            keep_result=0,
            poll_delay=POLL_S,
            max_tries=1_000,
            ctx={"worker": worker},
            job_serializer=_dumps,
            job_deserializer=_loads,
            log_results=False,
        )
        self._ours = worker
        self._queue = queue
        self._claim = queue.redis.register_script(_CLAIM)
        self.ctx["dispatcher"] = self
        self._arriving: set[str] = set()
        self._claims: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()

    async def main(self) -> None:
        """Poll once a second, and listen for tokens in between. Ends only by an error or a cancellation."""
        listener = asyncio.create_task(self._listen(), name="wake")
        try:
            while not listener.done():
                self.allow_pick_jobs = self._ours.free_slots > 0
                await self.pool.zremrangebyscore(self.queue_name, "-inf", timestamp_ms() - JOB_EXPIRES_MS)
                await self._poll_iteration()
                await asyncio.wait({listener}, timeout=self.poll_delay_s)
            listener.result()
        finally:
            listener.cancel()
            await asyncio.gather(listener, *self._claims, return_exceptions=True)
            await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _listen(self) -> None:
        lists = [self._queue.wake_list(agent) for agent in self._ours.names]
        while True:
            await self._room()
            token: Any = await cast(Awaitable[Any], self.pool.blpop(lists, timeout=1))
            # Whose turn it is goes round, so that one busy agent does not starve the others.
            lists.append(lists.pop(0))
            if token is not None and self._take_in(id := token[1].decode()):
                claiming = self.loop.create_task(self._claim_and_run(id))
                self._claims.add(claiming)
                claiming.add_done_callback(self._claims.discard)
                claiming.add_done_callback(_logged)

    async def _room(self) -> None:
        """Return when another job may be taken in."""
        while not self._has_room():
            await self._ours.slot()
            self._moved.clear()
            if not self._has_room():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._moved.wait()

    def _has_room(self) -> bool:
        return self.job_counter < self.max_jobs and self._ours.free_slots > len(self._arriving)

    def _take_in(self, id: str) -> bool:
        """Reserve a slot for a job until our worker counts it itself; False if it is not ours or there is no room."""
        if self._queue.agent_of(id) not in self._ours.names or id in self._arriving or not self._has_room():
            return False
        self._arriving.add(id)
        self.job_counter += 1
        return True

    def arrived(self, id: str) -> None:
        """Give a reservation back: the job is with our worker now, or has ended without coming that far."""
        self._arriving.discard(id)
        self._moved.set()

    async def start_jobs(self, job_ids: Sequence[bytes]) -> None:
        """Claim and start those of these jobs that are ours, as far as there is room."""
        for raw in job_ids:
            if self._take_in(id := raw.decode()):
                await self._claim_and_run(id)

    async def _claim_and_run(self, id: str) -> None:
        """Claim a job that was taken in, in one round trip, and start it."""
        claimed = False
        try:
            args: list[str | int] = [id, timestamp_ms(), int(self.in_progress_timeout_s * 1000)]
            score = await self._claim(keys=[in_progress_key + id, self.queue_name], args=args)
            claimed = score is not None
        finally:
            if not claimed:
                self._release(id)
        if claimed:
            task = self.loop.create_task(self.run_job(id, int(float(score))))
            task.add_done_callback(lambda task: self._job_done(id, task))
            self.tasks[id] = task

    def _release(self, id: str) -> None:
        self.job_counter -= 1
        self.arrived(id)

    def _job_done(self, id: str, task: "asyncio.Task[Any]") -> None:
        self._release(id)
        _logged(task)


def _logged(task: "asyncio.Task[Any]") -> None:
    """Log how a job went wrong; its run is found again without it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("dispatch_job_failed", error=type(error).__name__, detail=str(error)[:200])


async def _attend(ctx: dict[str, Any], thread: str) -> None:
    """The job. Returns nothing and raises nothing: whatever goes wrong, the pending row stands and is found again."""
    worker: Attending = ctx["worker"]
    dispatcher: Dispatcher = ctx["dispatcher"]
    dispatcher.arrived(ctx["job_id"])
    try:
        await worker.attend(thread)
    except Exception:
        log.exception("attend_failed", thread=thread)


async def dispatch(worker: Attending, queue: JobQueue) -> None:
    """Run the dispatcher until the worker leaves, starting it anew with a growing delay when Redis fails.

    Runs are never touched. The flag counts rather than the cancellation alone, which a client of Redis that is just in
    trouble may turn into an error of its own.
    """
    delay = RESTART_FIRST_S
    while not worker.leaving:
        began = asyncio.get_running_loop().time()
        try:
            await Dispatcher(worker, queue).async_run()
        except Exception as error:
            log.warning("dispatch_interrupted", error=type(error).__name__, detail=str(error)[:200])
        if asyncio.get_running_loop().time() - began > RESTART_MAX_S * 5:
            delay = RESTART_FIRST_S
        await asyncio.sleep(delay)
        delay = min(delay * 2, RESTART_MAX_S)
