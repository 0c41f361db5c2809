"""Threads and runs as resources, and news of their changes, from whichever replica caused them."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import mcp.types as types
from mcp.shared.exceptions import MCPError

from threadhold.adapters.http.schemas import next_cursor
from threadhold.adapters.mcp.desk import Desk
from threadhold.adapters.mcp.reading import RUN_URI, THREAD_URI, run_info, thread_info, thread_page
from threadhold.adapters.mcp.refusals import told
from threadhold.adapters.mcp.waiting import cancelled
from threadhold.fanout.cursor import Position

PAGE: Final = 50
URIS_MAX: Final = 100
CHANGE_EVERY_S: Final = 0.1
MEDIA_TYPE: Final = "application/json"
_URI: Final = re.compile(rf"(?:{THREAD_URI}|{RUN_URI})([^/?#]{{1,200}})")

TEMPLATES: Final = [
    types.ResourceTemplate(
        name="thread",
        title="A thread",
        uri_template=f"{THREAD_URI}{{id}}",
        description="A thread with its newest runs and open requests.",
        mime_type=MEDIA_TYPE,
    ),
    types.ResourceTemplate(
        name="run",
        title="A run",
        uri_template=f"{RUN_URI}{{id}}",
        description="A run with its status, output, tool calls and open requests.",
        mime_type=MEDIA_TYPE,
    ),
]


@dataclass(frozen=True, slots=True)
class Topic:
    """What the changes of a resource are read off: a thread's log from a fact on, or one run's part of it."""

    uri: str
    thread: str
    run: str | None
    seq: int


async def listed(desk: Desk, cursor: str | None) -> types.ListResourcesResult:
    """Return a page of threads as resources."""
    threads = await desk.threads(before=cursor, limit=PAGE)
    resources = [
        types.Resource(
            uri=each.uri,
            name=each.title or each.thread,
            description=f"A thread of {each.agent}; {each.state}.",
            mime_type=MEDIA_TYPE,
        )
        for each in map(thread_info, threads)
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=next_cursor(threads, PAGE))


async def read(desk: Desk, uri: str) -> types.ReadResourceResult:
    """Return a resource as JSON.

    Raises:
        MCPError: there is none that the principal may see.
    """
    id = _id(uri)
    try:
        if uri.startswith(RUN_URI):
            text = (await run_info(desk, id)).model_dump_json(exclude_none=True)
        else:
            text = json.dumps(await thread_page(desk, id), ensure_ascii=False)
    except Exception as error:
        raise refused(error, uri) from error
    content = types.TextResourceContents(uri=uri, mime_type=MEDIA_TYPE, text=text)
    return types.ReadResourceResult(contents=[content])


def _id(uri: str) -> str:
    match = _URI.fullmatch(uri)
    if match is None:
        text = f"{uri[:200]!r} is no resource of ours; there are {THREAD_URI}ID and {RUN_URI}ID"
        raise MCPError(types.INVALID_PARAMS, text, {"code": "not_found", "uri": uri[:200]})
    return match[1]


def refused(error: Exception, uri: str) -> MCPError:
    """Return an error as the protocol tells it: ours stands in its data."""
    if isinstance(error, MCPError):
        return error
    data = json.loads(json.dumps({**told(error), "uri": uri}, default=str))
    passing = data["retryable"] or data["code"] == "internal"
    return MCPError(types.INTERNAL_ERROR if passing else types.INVALID_PARAMS, data["message"], data)


async def topics(desk: Desk, uris: Sequence[str]) -> list[Topic]:
    """Return what to watch for these resources, from now on.

    Raises:
        MCPError: one of them is not there for the principal, or there are too many.
    """
    if len(uris) > URIS_MAX:
        raise MCPError(types.INVALID_PARAMS, f"at most {URIS_MAX} resources at once", {"code": "overloaded"})
    return [await _topic(desk, uri) for uri in dict.fromkeys(uris)]


async def _topic(desk: Desk, uri: str) -> Topic:
    id = _id(uri)
    try:
        run = await desk.run(id) if uri.startswith(RUN_URI) else None
        thread = await desk.thread(run.thread if run else id)
    except Exception as error:
        raise refused(error, uri) from error
    return Topic(uri, thread.id, run.id if run else None, thread.seq)


async def changes(desk: Desk, topics: Sequence[Topic]) -> AsyncGenerator[str, None]:
    """Yield the URI of each resource that has changed; changes in quick succession come as one.

    Raises:
        MCPError: one of them cannot be watched any more.
    """
    news = _News()
    watching = [asyncio.create_task(_watch(desk, topic, news)) for topic in topics]
    try:
        while True:
            for uri in await news.taken():
                yield uri
            await asyncio.sleep(CHANGE_EVERY_S)
    finally:
        await cancelled(*watching)


class _News:
    """What has changed and was not told yet, each once."""

    def __init__(self) -> None:
        self._uris: dict[str, None] = {}
        self._error: MCPError | None = None
        self._there = asyncio.Event()

    def add(self, uri: str) -> None:
        """Note a change."""
        self._uris[uri] = None
        self._there.set()

    def fail(self, error: MCPError) -> None:
        """Note that there will be no more."""
        self._error = error
        self._there.set()

    async def taken(self) -> list[str]:
        """Return what has changed, as soon as there is something.

        Raises:
            MCPError: there will be no more.
        """
        await self._there.wait()
        if self._error is not None and not self._uris:
            raise self._error
        uris = list(self._uris)
        self._uris.clear()
        if self._error is None:
            self._there.clear()
        return uris


async def _watch(desk: Desk, topic: Topic, news: _News) -> None:
    begin = Position(seq=topic.seq).cursor()
    try:
        frames = desk.watch(topic.thread, after=begin, until=None, kinds={"fact"})
        async with aclosing(frames):
            async for seen in frames:
                frame = seen.frame
                # A gap may hide a change of any of them.
                if frame.kind == "gap" or (frame.kind == "fact" and topic.run in (None, frame.run)):
                    news.add(topic.uri)
    except Exception as error:
        news.fail(refused(error, topic.uri))
