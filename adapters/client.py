"""A small client of the HTTP and WebSocket doors. It calls, decodes, and comes back when it is cut off."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException
from websockets.typing import Subprotocol

from threadhold.adapters.accounts import Accounts
from threadhold.adapters.calls import DELAY_FIRST_S
from threadhold.adapters.replies import ClientError, decoded, refused
from threadhold.fanout.frame import Frame
from threadhold.runner.records import Until, WatchKind

SUBPROTOCOL: Final = Subprotocol("threadhold.v1")
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
DELAY_MAX_S: Final = 3.0

__all__ = ["Client", "ClientError", "Watched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A frame as it came, with the cursor to go on from."""

    frame: Frame
    cursor: str
    fields: dict[str, Any]


@dataclass(slots=True)
class _Place:
    """How far a watch has come, and how long it has been cut off."""

    after: str | None
    failures: int = 0
    since: float | None = None
    last: ClientError | None = field(default=None)


class Client(Accounts):
    """Talks to one API replica: the calls, and watches that come back by themselves."""

    async def watch(
        self,
        thread: str,
        *,
        after: str | None = None,
        until: Until | None = None,
        kinds: Collection[WatchKind] | None = None,
    ) -> AsyncGenerator[Watched, None]:
        """Yield a thread's frames, each once, over any number of connections.

        Args:
            thread: which.
            after: a cursor, "start", "head", or None for the start of the current or last run.
            until: "idle" ends it when the thread is idle or paused.
            kinds: which frames to yield, over all connections; None for all.

        Raises:
            ClientError: the server refused, or could not be reached for `give_up_after` seconds.
        """
        place = _Place(after)
        wanted = {"thread": thread, "until": until, "kinds": None if kinds is None else sorted(kinds)}
        while True:
            try:
                async with aclosing(self._watched(wanted, place)) as frames:
                    async for watched in frames:
                        yield watched
                        if until is not None and watched.frame.kind == "end":
                            return
            except ClientError as error:
                if not error.passing:
                    raise
                place.last = error
            await self._pause(place)

    async def _watched(self, wanted: dict[str, Any], place: _Place) -> AsyncGenerator[Watched, None]:
        """Watch over one connection."""
        try:
            async with self._connected() as socket:
                # What was not asked for is not named: a server of an earlier version may not know it.
                given = {name: value for name, value in wanted.items() if value is not None}
                await socket.send(json.dumps({"id": 1, "op": "watch", "after": place.after, **given}))
                async for text in socket:
                    watched = _heard(text, place)
                    if watched is not None:
                        place.after, place.failures, place.since = watched.cursor, 0, None
                        yield watched
        except InvalidHandshake as error:
            raise ClientError("unreachable", f"{self._shown} does not speak our WebSocket: {error}") from None
        except InvalidURI as error:
            raise ClientError("bad_url", f"{self._shown} is not a URL that we can use: {error.msg}") from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._unreachable(error) from None

    def _connected(self) -> connect:
        return connect(
            self._ws_url,
            subprotocols=[SUBPROTOCOL],
            additional_headers=self._headers,
            proxy=None if self._local else True,
            max_size=FRAME_BYTES_MAX,
            open_timeout=5,
            ping_interval=10,
            ping_timeout=10,
            close_timeout=1,
        )

    async def _pause(self, place: _Place) -> None:
        """Wait before the next connection, or give up."""
        now = asyncio.get_running_loop().time()
        place.since = now if place.since is None else place.since
        if now - place.since > self._give_up_after:
            raise place.last or self._unreachable(None)
        delay = min(DELAY_MAX_S, DELAY_FIRST_S * 2.0 ** min(place.failures, 10))
        place.failures += 1
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))


def _heard(text: str | bytes, place: _Place) -> Watched | None:
    """Read one message of the socket: a frame, or something that moves or ends the watch."""
    try:
        heard = json.loads(text)
    except (ValueError, RecursionError):
        raise _odd("is not JSON") from None
    if not isinstance(heard, dict):
        raise _odd("is no JSON object")
    match heard.get("op"):
        case "frame":
            fields = {name: value for name, value in heard.items() if name != "op"}
            cursor = fields.get("cursor")
            if not isinstance(cursor, str):
                raise _odd("is a frame without a cursor")
            return Watched(frame=decoded(Frame, fields), cursor=cursor, fields=fields)
        case "result" if not heard.get("ok"):
            raise refused(_object(heard.get("error")))
        case "result":
            # Cut off before its first frame, a watch goes on from where it began, not from a later head.
            place.after = _object(heard.get("result")).get("cursor") or place.after
        case "watch_ended":
            raise refused(_object(heard.get("error")))
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _odd(what: str) -> ClientError:
    text = f"the server sent something over the WebSocket that {what}; is it of another version?"
    return ClientError("bad_answer", text)
