"""The call that brings the record as a whole."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import httpx
from pydantic import TypeAdapter, ValidationError

from threadhold.adapters.calls import query_of
from threadhold.adapters.granted import Granted
from threadhold.adapters.replies import ClientError, answered, refused
from threadhold.runner.exports import ExportedFact

DELAY_S: Final = 0.5
READ_S: Final = 30.0
_FACT: Final = TypeAdapter(ExportedFact)


class CutOff(ClientError):
    """An export that had begun has ended before its end."""

    @property
    def passing(self) -> bool:
        """Tell whether the same call may succeed a little later."""
        return True


class Exports(Granted):
    """Exports facts."""

    async def export(
        self, *, thread: str | None = None, run: str | None = None, after: str | None = None
    ) -> AsyncGenerator[ExportedFact, None]:
        """Yield facts by thread and seq, each once, over any number of connections; it ends only behind the last one.

        Args:
            thread: only those of this thread.
            run: only those of this run; without either, those of the whole workspace, for operators.
            after: the place to go on behind, as `ExportedFact.place.cursor()`.

        Raises:
            ClientError: the server refused, or could not be reached, once it had begun for `give_up_after` seconds.
        """
        loop = asyncio.get_running_loop()
        begun, since = False, None
        while True:
            try:
                query = query_of(thread=thread, run=run, after=after)
                async with aclosing(self._exported(query)) as facts:
                    async for fact in facts:
                        begun, since, after = True, None, fact.place.cursor()
                        yield fact
                return
            except ClientError as error:
                since = loop.time() if since is None else since
                if not (begun and error.passing) or loop.time() - since > self._give_up_after:
                    raise
            await asyncio.sleep(DELAY_S * random.uniform(0.5, 1.0))

    async def _exported(self, query: dict[str, Any]) -> AsyncGenerator[ExportedFact, None]:
        """Export over one connection."""
        timeout, count = httpx.Timeout(READ_S, connect=5.0), 0
        try:
            async with self._http.stream("GET", "/v1/export", params=query, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    answered(answer)
                async for text in answer.aiter_lines():
                    heard = _heard(text)
                    if isinstance(heard, int):
                        if heard == count:
                            return
                        raise _odd(f"has {count} lines and says that they are {heard}")
                    count += 1
                    yield heard
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        raise CutOff("cut_off", "the export has ended in the middle")


def _heard(text: str) -> ExportedFact | int:
    """Read one line: a fact, or how many there were. Raises ClientError if it says why there are no more."""
    try:
        line = json.loads(text)
        if not isinstance(line, dict):
            raise _odd("has a line that is no JSON object")
        if "end" not in line:
            return _FACT.validate_python(line)
    except (ValueError, ValidationError, RecursionError):
        raise _odd("has a line that is no fact") from None
    if line["end"] is True:
        return int(line.get("facts", -1))
    told = line.get("error")
    error = refused(told if isinstance(told, dict) else {})
    if isinstance(told, dict) and told.get("retryable"):
        raise CutOff(error.code, error.message, data=error.data)
    raise error


def _odd(what: str) -> ClientError:
    return ClientError("bad_answer", f"the server's export {what}; is it of another version?")
