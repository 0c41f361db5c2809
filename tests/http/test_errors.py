"""The table of errors is complete, and what it says of each is consistent."""

from threadhold.adapters.http.errors import WIRE, refusal
from threadhold.fanout.errors import WatchInterrupted
from threadhold.runner import errors


def kinds(base: type[errors.RunnerError]) -> set[type[errors.RunnerError]]:
    """Return all errors below one that the Runner itself has."""
    own = [kind for kind in base.__subclasses__() if kind.__module__ == errors.__name__]
    return set(own).union(*(kinds(kind) for kind in own))


def test_every_error_of_the_runner_has_a_row() -> None:
    assert set(WIRE) == kinds(errors.RunnerError)


def test_what_may_be_tried_again_says_when() -> None:
    for kind, row in WIRE.items():
        assert (row.retry_after is not None) == (row.status in {429, 503}), kind
        assert kind.retryable or row.retry_after is None, kind


def test_an_applications_own_error_is_told_as_its_ancestor() -> None:
    class OutOfHours(errors.Forbidden):
        code = "out_of_hours"

    told = refusal(OutOfHours("send"))
    assert (told.status, told.code) == (403, "out_of_hours")


def test_an_interrupted_watch_can_be_taken_up_again() -> None:
    told = refusal(WatchInterrupted(thread="t", cursor="3-1-0", reason="no Postgres"))
    assert (told.status, told.code, told.retryable) == (503, "unavailable", True)
    assert "3-1-0" in told.message
