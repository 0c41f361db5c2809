"""The outbox: joins deltas, keeps their text, and never holds the run up."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fanout.support import THREAD, until
from threadhold.fanout.errors import LiveUnavailable
from threadhold.fanout.frame import Frame
from threadhold.fanout.outbox import Outbox
from threadhold.fanout.ports import LivePage, Place


def delta(text: str, *, index: int = 0, kind: str = "text", **fields: Any) -> dict[str, Any]:
    """Return a delta as pydantic-ai dumps it."""
    name = "args_delta" if kind == "tool_call" else "content_delta"
    inner = {"part_delta_kind": kind, name: text, "provider_name": None, "provider_details": None}
    return {"event_kind": "part_delta", "index": index, "delta": inner | fields}


def text_of(frame: Frame) -> str:
    inner = frame.data["delta"]
    text = inner.get("content_delta", inner.get("args_delta"))
    assert isinstance(text, str)
    return text


class FakeLive:
    """Keeps what is appended; can fail, hang, or refuse."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.batches = 0
        self.calls = 0
        self.failing = False
        self.superseded = False
        self.cleared: list[Place] = []
        self.open = asyncio.Event()
        self.open.set()

    async def append(self, thread: str, fence: int, frames: Sequence[Frame]) -> Place | None:
        self.calls += 1
        await self.open.wait()
        if self.failing:
            raise LiveUnavailable("store live frames", "away")
        if self.superseded:
            return (99, 1)
        self.batches += 1
        last = self.frames[-1].n if self.frames else 0
        self.frames.extend(frame for frame in frames if frame.n > last)
        return None

    async def clear(self, thread: str, top: Place) -> None:
        self.cleared.append(top)
        self.superseded = False

    async def live(self, thread: str, *, after: Place, limit: int) -> LivePage:
        raise AssertionError("an outbox does not read")

    async def tops(self, threads: Sequence[str]) -> dict[str, Place]:
        raise AssertionError("an outbox does not read")

    async def ring(self, thread: str, seq: int) -> None:
        raise AssertionError("an outbox rings no doorbells")

    @property
    def deltas(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind == "event"]


def make(live: FakeLive, **settings: Any) -> Outbox:
    outbox = Outbox(live, thread=THREAD, run="r1", fence=7, **settings)
    outbox.start(attempt=2, seq=3)
    return outbox


class TestSending:
    async def test_begins_with_the_attempt(self) -> None:
        live = FakeLive()
        outbox = make(live)
        assert await outbox.flush(5.0)
        [frame] = live.frames
        assert (frame.kind, frame.n, frame.fence, frame.seq, frame.data) == (
            "attempt",
            1,
            7,
            3,
            {"attempt": 2},
        )
        assert outbox.position == (7, 1)
        await outbox.aclose()

    async def test_sends_other_frames_at_once_and_behind_the_deltas_before_them(self) -> None:
        live = FakeLive()
        outbox = make(live, window=60)
        outbox.put("event", delta("Hel"), seq=3)
        outbox.put("event", delta("lo"), seq=3)
        outbox.put("event", {"event_kind": "part_end", "index": 0}, seq=3)
        await until(lambda: len(live.frames) == 3)
        assert text_of(live.frames[1]) == "Hello"
        assert [frame.n for frame in live.frames] == [1, 2, 3]
        await outbox.aclose()

    async def test_sends_deltas_when_their_window_has_passed(self) -> None:
        live = FakeLive()
        outbox = make(live, window=0.01)
        outbox.put("event", delta("a"), seq=3)
        await until(lambda: len(live.frames) == 2)
        await outbox.aclose()

    async def test_cannot_be_started_twice(self) -> None:
        outbox = make(FakeLive())
        with pytest.raises(RuntimeError, match="one per attempt"):
            outbox.start(attempt=1, seq=1)
        await outbox.aclose()

    async def test_sends_the_rest_when_it_is_closed_and_nothing_after(self) -> None:
        live = FakeLive()
        outbox = make(live, window=60)
        outbox.put("event", delta("rest"), seq=3)
        await outbox.aclose(5.0)
        outbox.put("event", delta("late"), seq=3)
        assert [text_of(frame) for frame in live.deltas] == ["rest"]

    async def test_an_outbox_that_was_not_started_can_be_closed(self) -> None:
        await Outbox(FakeLive(), thread=THREAD, run="r1", fence=7).aclose()


class TestJoining:
    @given(st.lists(st.text(st.characters(codec=None, exclude_categories=()), max_size=40), max_size=60))
    def test_keeps_every_character(self, texts: list[str]) -> None:
        async def run() -> None:
            live = FakeLive()
            outbox = make(live, window=60)
            for text in texts:
                outbox.put("event", delta(text), seq=3)
            assert await outbox.flush(10.0)
            await outbox.aclose()
            assert "".join(map(text_of, live.deltas)) == "".join(texts)
            assert len(live.deltas) <= 1 + sum(map(len, texts)) // 2048

        asyncio.run(run())

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (delta("a"), delta("b", index=1)),
            (delta("a"), delta("b", kind="thinking")),
            (delta("a", kind="thinking"), delta("b", kind="thinking", signature_delta="s")),
            (delta("a", kind="tool_call"), delta("b", kind="tool_call", tool_name_delta="x")),
            (delta("a", kind="tool_call", tool_call_id="1"), delta("b", kind="tool_call", tool_call_id="2")),
            (delta("a"), delta("b", provider_details={"x": 1})),
            (delta("a"), delta("b", citations_delta=[{"url": "u"}])),
            (delta("a"), delta("b") | {"later": 1}),
        ],
    )
    async def test_leaves_apart_what_differs(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        live = FakeLive()
        outbox = make(live, window=60)
        outbox.put("event", first, seq=3)
        outbox.put("event", second, seq=3)
        assert await outbox.flush(5.0)
        assert [frame.data for frame in live.deltas] == [first, second]
        await outbox.aclose()

    @pytest.mark.parametrize("kind", ["text", "thinking", "tool_call"])
    async def test_joins_each_kind(self, kind: str) -> None:
        live = FakeLive()
        outbox = make(live, window=60)
        for text in '{"a": 1}':
            outbox.put("event", delta(text, kind=kind), seq=3)
        assert await outbox.flush(5.0)
        assert [frame.data for frame in live.deltas] == [delta('{"a": 1}', kind=kind)]
        await outbox.aclose()

    async def test_leaves_arguments_that_are_no_text_alone(self) -> None:
        live = FakeLive()
        outbox = make(live, window=60)
        outbox.put("event", delta("", kind="tool_call", args_delta={"a": 1}), seq=3)
        outbox.put("event", delta("", kind="thinking", content_delta=None), seq=3)
        assert await outbox.flush(5.0)
        assert len(live.deltas) == 2
        await outbox.aclose()

    async def test_does_not_join_over_a_fact(self) -> None:
        live = FakeLive()
        outbox = make(live, window=60)
        outbox.put("event", delta("a"), seq=3)
        outbox.put("event", delta("b"), seq=4)
        assert await outbox.flush(5.0)
        assert [(frame.seq, text_of(frame)) for frame in live.deltas] == [(3, "a"), (4, "b")]
        await outbox.aclose()


class TestWithoutRedis:
    async def test_a_hanging_redis_costs_a_put_nothing_and_a_flush_its_bound(self) -> None:
        live = FakeLive()
        live.open.clear()
        outbox = make(live)
        for n in range(10_000):
            outbox.put("draft", {"n": n}, seq=3)
        began = time.monotonic()
        assert not await outbox.flush(0.05)
        assert time.monotonic() - began < 5.0
        await outbox.aclose(0.01)
        assert live.frames == []

    async def test_frames_that_do_not_fit_leave_a_hole(self) -> None:
        live = FakeLive()
        live.open.clear()
        outbox = make(live, frames_max=10)
        await until(lambda: live.calls == 1)
        for n in range(100):
            outbox.put("draft", {"n": n}, seq=3)
        assert outbox.position == (7, 101)
        live.open.set()
        assert await outbox.flush(5.0)
        assert [frame.n for frame in live.frames] == [1, *range(92, 102)]
        assert outbox.dropped == 91
        await outbox.aclose()

    async def test_bytes_are_bounded_too(self) -> None:
        live = FakeLive()
        live.open.clear()
        outbox = make(live, bytes_max=10_000)
        for _ in range(100):
            outbox.put("draft", {"text": "x" * 1000}, seq=3)
        live.open.set()
        assert await outbox.flush(5.0)
        assert len(live.frames) < 12
        await outbox.aclose()

    async def test_it_goes_on_when_redis_is_back(self) -> None:
        live = FakeLive()
        live.failing = True
        outbox = make(live)
        outbox.put("draft", {"n": 1}, seq=3)
        await until(lambda: live.calls >= 2)
        assert not await outbox.flush(60.0), "an outage that is known is not waited for"
        live.failing = False
        await until(lambda: len(live.frames) == 2)
        assert await outbox.flush(5.0)
        await outbox.aclose()

    async def test_a_successor_silences_it_for_good(self) -> None:
        live = FakeLive()
        live.superseded = True
        outbox = make(live)
        await until(lambda: outbox.superseded)
        live.superseded = False
        outbox.put("draft", {"n": 1}, seq=3)
        assert not await outbox.flush(5.0)
        assert live.frames == []
        await outbox.aclose()

    async def test_frames_of_a_lost_future_are_cleared_if_the_claim_still_stands(self) -> None:
        live = FakeLive()
        live.superseded = True

        async def holds() -> bool:
            return True

        outbox = make(live, holds=holds)
        outbox.put("draft", {"n": 1}, seq=3)
        assert await outbox.flush(5.0)
        assert live.cleared == [(99, 1)]
        assert [frame.n for frame in live.frames] == [1, 2]
        assert not outbox.superseded
        await outbox.aclose()

    async def test_while_nobody_can_say_whether_the_claim_stands_it_goes_on_asking(self) -> None:
        live = FakeLive()
        live.superseded = True
        answers: list[Exception | bool] = [ConnectionError("postgres is away"), False]

        async def holds() -> bool:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        outbox = make(live, holds=holds)
        await until(lambda: outbox.superseded)
        assert (answers, live.cleared) == ([], [])
        await outbox.aclose()

    async def test_what_json_cannot_hold_is_a_hole_not_an_error(self) -> None:
        live = FakeLive()
        outbox = make(live)
        outbox.put("draft", {"n": object()}, seq=3)
        outbox.put("draft", {"n": 1}, seq=3)
        assert await outbox.flush(5.0)
        assert [frame.n for frame in live.frames] == [1, 3]
        await outbox.aclose()
