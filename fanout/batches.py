"""Calls of one script by many at once, sent together: each costs a part of a round trip instead of a whole one.

Whatever is called while a batch is under way goes with the next one, so nobody waits for company.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError

from threadhold.fanout.connections import COMMAND_MAX, Client

_BATCH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Call:
    keys: Sequence[str]
    args: Sequence[Any]
    answer: asyncio.Future[Any]


class Batches:
    """Calls one script.

    Args:
        client: from `connect`.
        script: its text.
    """

    def __init__(self, client: Client, script: str) -> None:
        self._client = client
        self._script = client.register_script(script)
        self._calls: deque[_Call] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    async def call(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Call the script and return its answer.

        Raises:
            redis.exceptions.RedisError, OSError: what the driver raises; a lost connection, once this is closed.
        """
        if self._closed:
            raise _gone()
        call = _Call(keys, args, asyncio.get_running_loop().create_future())
        self._calls.append(call)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="redis-batches")
        return await call.answer

    async def aclose(self) -> None:
        """Send nothing any more; who waits for an answer is told at once that there is none."""
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
        while self._calls:
            _settle(self._calls.popleft(), _gone())

    async def _send(self) -> None:
        while self._calls:
            batch = [self._calls.popleft() for _ in range(min(_BATCH_MAX, len(self._calls)))]
            wanted = [call for call in batch if not call.answer.done()]
            try:
                # The driver's bound is one for each answer.
                async with asyncio.timeout(COMMAND_MAX):
                    await self._send_together(wanted)
            except BaseException as error:
                ends = not isinstance(error, Exception)
                for call in wanted:
                    # Cancelled is this task, not those who wait for it.
                    _settle(call, _gone() if ends else error)
                if ends:
                    raise

    async def _send_together(self, calls: Sequence[_Call]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            pipeline.evalsha(self._script.sha, len(call.keys), *call.keys, *call.args)
        for call, answer in zip(calls, await pipeline.execute(raise_on_error=False), strict=True):
            if isinstance(answer, NoScriptError | ReadOnlyError):
                # By itself it loads the script, or looks for the new primary.
                answer = await self._alone(call)
            _settle(call, answer)

    async def _alone(self, call: _Call) -> Any:
        try:
            return await self._script(keys=call.keys, args=call.args)
        except Exception as error:
            return error


def _settle(call: _Call, answer: Any) -> None:
    if call.answer.done():
        return
    if isinstance(answer, BaseException):
        call.answer.set_exception(answer)
    else:
        call.answer.set_result(answer)


def _gone() -> RedisConnectionError:
    return RedisConnectionError("this process sends nothing any more")
