"""Cursors and frames as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fanout.support import fact, live
from threadhold.fanout.cursor import N_MAX, InvalidCursor, Position, parse_cursor
from threadhold.fanout.frame import Delivery, Frame, parse_frame

positions = st.builds(
    Position, seq=st.integers(0, 10**15 - 1), fence=st.integers(0, 10**18 - 1), n=st.integers(0, N_MAX)
)
# Any text that Python can hold, lone surrogates and NUL included.
texts = st.text(st.characters(codec=None, exclude_categories=()))


@given(positions)
def test_a_cursor_comes_back_as_the_position_it_was(position: Position) -> None:
    assert parse_cursor(position.cursor()) == position


@pytest.mark.parametrize(
    "text",
    ["", "1", "1-2", "1-2-3-4", "-1-2-3", "1-2-3\n", "a-b-c", "1 -2-3", "1-2-" + "9" * 99, "\u0661-2-3"],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        parse_cursor(text)


@given(texts)
def test_a_frame_comes_back_from_its_body(text: str) -> None:
    frame = live(7, 2, text=text or "-")
    encoded = frame.body().encode()
    assert parse_frame(encoded) == frame


@pytest.mark.parametrize("body", ["", "[]", "{}", "null", '{"thread":"t"}', "{" * 100, "[" * 100_000])
def test_what_is_no_frame_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match="the text is not a frame"):
        parse_frame(body)


def test_fields_of_a_newer_version_are_ignored() -> None:
    body = fact(3).body()
    assert parse_frame(body[:-1] + ',"later":1}') == fact(3)


def test_a_delivery_is_its_frame_and_the_cursor_behind_it() -> None:
    frame = fact(3)
    text = Delivery(frame=frame, body=frame.body(), position=Position(seq=3)).json()
    fields = json.loads(text)
    assert fields.pop("cursor") == "3-0-0"
    assert Frame(**fields) == frame
