"""The page on problems has each code that can be sent, with the status that is sent."""

import json
import re
from collections.abc import Iterator
from typing import Final, TypeVar

from tests.project.sources import ROOT
from threadhold.adapters.http.errors import WIRE, DoorError, refusal
from threadhold.adapters.http.problem import problem_response
from threadhold.fanout.errors import FanoutError, LiveUnavailable, WatchInterrupted
from threadhold.runner.errors import ThreadArchived

T = TypeVar("T")

PAGE: Final = (ROOT / "docs" / "problems.md").read_text()
# What comes of a bug, and of what the web framework refuses by itself with a status of its own.
OTHERS: Final = {("internal", "500"), ("http_error", "any")}
FANOUT: Final = (
    LiveUnavailable("publish", "it is away"),
    WatchInterrupted(thread="t", cursor="1-1-1", reason="no Postgres"),
)


def below(kind: type[T]) -> Iterator[type[T]]:
    """Yield all of our own types that are derived from one."""
    for found in kind.__subclasses__():
        if found.__module__.startswith("threadhold."):
            yield found
            yield from below(found)


def test_each_code_has_its_heading_with_its_status_and_no_other_is_there() -> None:
    sent = {(kind.code, str(row.status)) for kind, row in WIRE.items()}
    sent |= {(kind.code, str(kind.status)) for kind in below(DoorError)}
    sent |= {(told.code, str(told.status)) for told in map(refusal, FANOUT)}
    told = re.findall(r"^### `(\w+)`\n(\w+)[.,]", PAGE, re.MULTILINE)
    assert len(told) == len(set(told)) == len(re.findall("^### ", PAGE, re.MULTILINE))
    assert set(told) == sent | OTHERS


def test_no_error_of_the_fanout_is_forgotten() -> None:
    assert {type(error) for error in FANOUT} == set(below(FanoutError))


def test_what_may_be_tried_again_is_said_to_be() -> None:
    again = set(re.findall(r"^### `(\w+)`\n\d+, retry\.", PAGE, re.MULTILINE))
    of_runner = {kind.code for kind in WIRE if kind.retryable}
    of_fanout = {kind.code for kind in below(FanoutError) if kind.retryable}
    assert again == of_runner | of_fanout | {"rate_limited"}


def test_the_example_is_what_is_sent() -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    told = refusal(ThreadArchived(json.loads(shown)["data"]["thread"]))
    assert json.loads(bytes(problem_response(told).body)) == json.loads(shown)
