"""The outbox: order, room, and the end."""

import asyncio

import pytest

from threadhold.adapters.http.outbox import Outbox


async def test_all_that_waits_is_taken_in_order() -> None:
    outbox = Outbox(items_max=10, chars_max=100)
    for text in "abc":
        await outbox.put(text)
    assert await outbox.take() == ["a", "b", "c"]


@pytest.mark.parametrize(("items_max", "chars_max"), [(2, 100), (10, 4)])
async def test_whoever_puts_waits_for_room(items_max: int, chars_max: int) -> None:
    outbox = Outbox(items_max=items_max, chars_max=chars_max)
    putting = [asyncio.create_task(outbox.put(f"{n:02}")) for n in range(7)]
    taken: list[str] = []
    while len(taken) < 7:
        some = await outbox.take()
        assert len(some) <= 2
        taken += some
    await asyncio.gather(*putting)
    assert sorted(taken) == [f"{n:02}" for n in range(7)]


async def test_a_text_larger_than_the_bound_still_gets_through() -> None:
    outbox = Outbox(items_max=2, chars_max=4)
    await outbox.put("x" * 100)
    assert await outbox.take() == ["x" * 100]


async def test_the_last_text_needs_no_room_and_what_waits_survives_the_close() -> None:
    outbox = Outbox(items_max=1, chars_max=4)
    await outbox.put("a")
    waiting = asyncio.create_task(outbox.put("b"))
    outbox.put_last("c")
    outbox.close()
    await waiting
    outbox.put_last("d")
    assert await outbox.take() == ["a", "c"]
    assert await outbox.take() == []


async def test_a_close_wakes_who_waits_for_texts() -> None:
    outbox = Outbox(items_max=1, chars_max=4)
    taking = asyncio.create_task(outbox.take())
    outbox.close()
    assert await taking == []
