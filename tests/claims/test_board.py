"""Numbers in shared memory: seen by the other process, and never half-written."""

import os

from hypothesis import given
from hypothesis import strategies as st

from threadhold.claims.board import _CELL, _HEADER, SLOTS_MAX, Board


def test_number_is_seen_through_the_other_mapping() -> None:
    ours = Board()
    theirs = Board(os.dup(ours.fd))
    assert theirs.read("tick") == 0.0
    ours.write("tick", 12.5)
    theirs.extend(SLOTS_MAX - 1, 7, 99.25)
    assert theirs.read("tick") == 12.5
    assert ours.read("proof") == 0.0
    assert ours.deadline(SLOTS_MAX - 1, 7) == 99.25
    theirs.close()
    ours.close()


def test_deadline_of_another_claim_in_the_same_slot_counts_for_nothing() -> None:
    board = Board()
    board.extend(3, 1, 50.0)
    assert board.deadline(3, 2) == 0.0
    assert board.deadline(4, 1) == 0.0
    board.close()


@given(old=st.floats(1, 1e9), new=st.floats(1, 1e9), cut=st.integers(1, _CELL.size - 1))
def test_half_written_number_is_never_taken_for_a_deadline(old: float, new: float, cut: int) -> None:
    board = Board()
    at = _HEADER * _CELL.size
    board.extend(0, 1, old)
    before = board._memory[at : at + _CELL.size]
    board.extend(0, 1, new)
    after = board._memory[at : at + _CELL.size]
    board._memory[at : at + _CELL.size] = after[:cut] + before[cut:]
    assert board.deadline(0, 1) in (0.0, old, new)
    board.close()
