"""The rules of merging, as properties over all histories of a thread."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.fanout.support import check_order, fact, live, mark
from threadhold.fanout.cursor import N_MAX, Position
from threadhold.fanout.frame import Frame
from threadhold.fanout.merge import accept, closes_attempt, interleave, merge, position_after


@dataclass
class History:
    """All that was ever published on a thread, in the order in which it happened."""

    frames: list[Frame]

    @property
    def facts(self) -> list[Frame]:
        return [frame for frame in self.frames if not frame.is_live]

    @property
    def live(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.is_live]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Runs of facts and live frames; fences grow, and a closing fact names the last frame of its attempt."""
    frames: list[Frame] = []
    seq = fence = 0
    for steps in draw(st.lists(st.lists(st.booleans(), max_size=8), min_size=1, max_size=4)):
        fence, n = fence + draw(st.integers(1, 3)), 1
        frames.append(live(fence, n, seq=seq))
        for is_fact in steps:
            if is_fact:
                seq += 1
                frames.append(fact(seq))
            else:
                n += 1
                frames.append(live(fence, n, seq=seq))
        seq += 1
        frames.append(fact(seq, "run_ended", live=(fence, n)))
    return History(frames)


def watch(history: History, data: st.DataObject) -> list[tuple[Frame, Position]]:
    """Play a watcher against the stores: snapshots, arrivals, losses, repetitions, re-subscriptions."""
    position = Position()
    out: list[tuple[Frame, Position]] = []
    published = 0
    gone = data.draw(st.sets(st.integers(0, len(history.frames)), max_size=4), label="frames lost in redis")

    def backlog() -> None:
        nonlocal position
        seen = history.frames[:published]
        stored = [f for i, f in enumerate(seen) if f.is_live and i not in gone]
        facts = [f for f in seen if not f.is_live and f.seq > position.seq]
        steps = merge(facts, [f for f in stored if (f.fence, f.n) > position.live], position)
        out.extend(steps)
        position = steps[-1][1] if steps else position

    while published < len(history.frames):
        published += data.draw(st.integers(1, 4), label="published")
        heard = history.frames[max(0, published - 6) : published]
        arriving = data.draw(st.lists(st.sampled_from(heard)), label="heard, in any order") if heard else []
        for frame in arriving:
            verdict = accept(position, frame)
            if verdict == "reread":
                backlog()
            elif verdict == "deliver":
                position = position_after(position, frame)
                out.append((frame, position))
    published = len(history.frames)
    backlog()
    return out


class TestAWatcher:
    @given(histories(), st.data())
    def test_gets_all_in_order_once_and_sees_every_hole(self, history: History, data: st.DataObject) -> None:
        out = watch(history, data)
        check_order(out, Position())
        assert [f.seq for f, _ in out if f.kind == "fact"] == [f.seq for f in history.facts]

    @given(histories(), st.data())
    def test_is_told_what_it_misses(self, history: History, data: st.DataObject) -> None:
        """The closing facts name the last live frame, so even a lost tail is marked."""
        out = watch(history, data)
        missing = {(f.fence, f.n) for f in history.live} - {(f.fence, f.n) for f, _ in out}
        gaps = [f.data for f, _ in out if f.kind == "gap"]
        assert not missing or gaps

    @given(histories(), st.data())
    def test_can_leave_and_come_back_with_its_cursor(self, history: History, data: st.DataObject) -> None:
        whole = merge(history.facts, history.live, Position())
        at = data.draw(st.integers(0, len(whole)))
        position = whole[at - 1][1] if at else Position()
        facts = [f for f in history.facts if f.seq > position.seq]
        assert merge(facts, history.live, position) == whole[at:]

    @given(histories())
    def test_gets_a_whole_history_as_it_happened(self, history: History) -> None:
        out = [frame for frame, _ in merge(history.facts, history.live, Position())]
        assert out == history.frames

    @given(histories())
    def test_gets_the_same_frame_by_frame_as_in_one_reading(self, history: History) -> None:
        position, steps = Position(), []
        for frame in history.frames:
            assert accept(position, frame) == "deliver"
            position = position_after(position, frame)
            steps.append((frame, position))
        assert steps == merge(history.facts, history.live, Position())


class TestMerge:
    def test_puts_live_frames_behind_the_fact_they_came_after(self) -> None:
        order = interleave(
            [fact(1), fact(2), fact(3)], [live(7, 1, seq=1), live(7, 2, seq=1), live(7, 3, seq=2)]
        )
        assert [mark(frame) for frame in order] == ["f1", "7-1", "7-2", "f2", "7-3", "f3"]

    def test_marks_a_trimmed_beginning(self) -> None:
        steps = merge([], [live(7, 5), live(7, 6)], Position())
        assert [mark(frame) for frame, _ in steps] == ["gap:trimmed", "7-5", "7-6"]
        assert steps[0][1] == Position(fence=7, n=4)

    def test_marks_frames_that_the_outbox_dropped(self) -> None:
        steps = merge([], [live(7, 1), live(7, 4)], Position())
        assert [mark(frame) for frame, _ in steps] == ["7-1", "gap:lost", "7-4"]

    def test_takes_a_later_attempt_that_begins_at_one_without_a_gap(self) -> None:
        steps = merge([], [live(7, 1), live(9, 1)], Position())
        assert [mark(frame) for frame, _ in steps] == ["7-1", "9-1"]

    def test_marks_a_later_attempt_whose_beginning_is_gone(self) -> None:
        steps = merge([], [live(7, 1), live(9, 2)], Position())
        assert [mark(frame) for frame, _ in steps] == ["7-1", "gap:trimmed", "9-2"]

    def test_marks_a_lost_tail_before_the_fact_that_closes_the_attempt(self) -> None:
        steps = merge([fact(1, "run_ended", live=(7, 9))], [live(7, 1)], Position())
        assert [mark(frame) for frame, _ in steps] == ["7-1", "gap:lost", "f1"]
        assert steps[-1][1] == Position(seq=1, fence=7, n=9)

    def test_marks_nothing_when_a_closing_fact_names_no_frame(self) -> None:
        assert len(merge([fact(1, "run_ended")], [], Position())) == 1

    def test_marks_facts_that_were_pruned(self) -> None:
        steps = merge([fact(5), fact(6)], [], Position(seq=1))
        assert [mark(frame) for frame, _ in steps] == ["gap:pruned", "f5", "f6"]

    def test_skips_all_of_a_fence_behind_n_max(self) -> None:
        position = Position(seq=3, fence=7, n=N_MAX)
        steps = merge([fact(4, "run_ended", live=(7, 9))], [live(7, 8, seq=3), live(8, 1, seq=4)], position)
        assert [mark(frame) for frame, _ in steps] == ["f4", "8-1"]


class TestAccept:
    def test_delivers_what_is_next(self) -> None:
        position = Position(seq=3, fence=7, n=2)
        assert accept(position, fact(4)) == "deliver"
        assert accept(position, live(7, 3, seq=3)) == "deliver"
        assert accept(position, live(8, 1, seq=3)) == "deliver"

    def test_delivers_deltas_behind_a_newer_fact_of_somebody_else(self) -> None:
        assert accept(Position(seq=9, fence=7, n=2), live(7, 3, seq=3)) == "deliver"

    def test_drops_what_was_seen(self) -> None:
        position = Position(seq=3, fence=7, n=2)
        assert {accept(position, frame) for frame in (fact(3), live(7, 2), live(6, 99))} == {"drop"}

    def test_rereads_behind_a_hole(self) -> None:
        position = Position(seq=3, fence=7, n=2)
        holes = (fact(5), live(7, 4, seq=3), live(8, 2, seq=3), live(7, 3, seq=4))
        assert {accept(position, frame) for frame in holes} == {"reread"}

    def test_rereads_before_an_end_whose_last_frames_have_not_come(self) -> None:
        assert accept(Position(fence=7, n=2), fact(1, "run_ended", live=(7, 3))) == "reread"
        assert accept(Position(fence=7, n=3), fact(1, "run_ended", live=(7, 3))) == "deliver"


def test_facts_that_close_an_attempt_are_known() -> None:
    assert closes_attempt(fact(1, "run_ended"))
    assert closes_attempt(fact(1, "paused"))
    assert not closes_attempt(fact(1, "model_called"))
    assert not closes_attempt(live(7, 1))
