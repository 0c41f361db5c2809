"""The calls that read the record: their pages, one after the other."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from threadhold.adapters.client import Client, ClientError
from threadhold.adapters.reviews import PAGE, all_of
from threadhold.runner.records import Page


@asynccontextmanager
async def answering(*answers: httpx.Response) -> AsyncIterator[tuple[Client, list[httpx.Request]]]:
    """Return a client whose calls are answered so, one after the other, and what it asks."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answers[len(asked) - 1]

    async with Client("http://127.0.0.1:9") as client:
        client._http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url=client.url)
        yield client, asked


def page(items: list[Any], behind: Any = None) -> httpx.Response:
    """Return a page."""
    return httpx.Response(200, json={"items": items, "next_cursor": behind})


async def numbers(after: int, limit: int) -> Page[int]:
    """Return a page of the numbers to 250, of which at most 7 fit on one."""
    found = list(range(after + 1, min(after + min(limit, 7), 250) + 1))
    return Page(items=found, next=found[-1] if found and found[-1] < 250 else None)


@pytest.mark.parametrize(
    ("after", "most", "expected"),
    [
        (0, None, range(1, 251)),
        (247, None, range(248, 251)),
        (250, None, range(0)),
        (3, 10, range(4, 14)),
        (0, 7, range(1, 8)),
        (0, 0, range(0)),
        (240, 100, range(241, 251)),
    ],
)
async def test_pages_are_read_to_the_last_or_to_as_many_as_are_wanted(
    after: int, most: int | None, expected: range
) -> None:
    assert [number async for number in all_of(numbers, after=after, most=most)] == list(expected)


async def test_no_more_is_asked_for_than_is_wanted_and_no_page_is_asked_for_in_vain() -> None:
    asked: list[tuple[int, int]] = []

    async def look(after: int, limit: int) -> Page[int]:
        asked.append((after, limit))
        # What is kept together comes together, even if it is more than was asked for.
        return Page(items=[1, 2, 3], next=after + 3)

    assert [number async for number in all_of(look, most=4)] == [1, 2, 3, 1]
    assert [number async for number in all_of(look, after=9, most=PAGE + 5)][:1] == [1]
    assert asked[:3] == [(0, 4), (3, 1), (9, PAGE)]
    assert asked[-1] == (9 + PAGE + 2, 3)


async def test_a_page_is_asked_for_behind_a_place() -> None:
    async with answering(page([{"kind": "request"}], "7"), page([])) as (client, asked):
        assert await client.history("a/b") == Page(items=[{"kind": "request"}], next=7)
        assert await client.facts("t", after=7, limit=3) == Page(items=[], next=None)
    assert [str(request.url.raw_path, "ascii") for request in asked] == [
        "/v1/threads/a%2Fb/history?cursor=0&limit=100",
        "/v1/threads/t/facts?cursor=7&limit=3",
    ]


@pytest.mark.parametrize("behind", ["x", "-1", 1.5, ""])
async def test_a_page_that_ends_nowhere_is_a_typed_error(behind: Any) -> None:
    async with answering(page([], behind)) as (client, _):
        with pytest.raises(ClientError) as caught:
            await client.attempts("r")
    assert caught.value.code == "bad_answer"


async def test_members_are_let_in_and_out_by_ids_with_anything_in_them() -> None:
    member = {
        "principal": "https://a/b?c",
        "access": "read",
        "added_by": "ada",
        "added_at": "2026-03-01T12:00:00Z",
    }
    async with answering(httpx.Response(200, json=member), httpx.Response(204)) as (client, asked):
        assert (await client.set_member("t", "https://a/b?c", "read")).principal == "https://a/b?c"
        await client.remove_member("t", "https://a/b?c")
    path = "/v1/threads/t/members/https%3A%2F%2Fa%2Fb%3Fc"
    assert [(request.method, str(request.url.raw_path, "ascii")) for request in asked] == [
        ("PUT", path),
        ("DELETE", path),
    ]
    assert json.loads(asked[0].content) == {"access": "read"}
