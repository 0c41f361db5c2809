"""What the pages say about the code is read off the code."""

import re

from tests.project.sources import ROOT
from threadhold.adapters.bootstrap import HEARD_S
from threadhold.adapters.http.doors import Limits
from threadhold.adapters.processes import DEV_GRACE
from threadhold.adapters.settings import Settings
from threadhold.claims.blocks import BLOCKED_AFTER_S
from threadhold.claims.renewals import LOOP_DEAD_AFTER_S
from threadhold.fanout.redis import PUBLISH_BYTES_MAX
from threadhold.runner.machine import diagram

PAGE = (ROOT / "docs" / "how-it-works.md").read_text()


def test_the_picture_of_a_run_is_drawn_from_the_table_in_the_code() -> None:
    assert f"```mermaid\n{diagram()}\n```" in PAGE


def test_named_files_exist() -> None:
    named = re.findall(r"`((?:runner|storage|claims|fanout|adapters)/[\w/.]*)`", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_named_times_are_the_defaults() -> None:
    assert Settings.model_fields["renew_every"].default.total_seconds() == 1.5
    assert "each 1.5 s" in PAGE
    assert (BLOCKED_AFTER_S, LOOP_DEAD_AFTER_S) == (2, 60)
    assert "has not ticked for 60 s" in PAGE
    assert "after\ntwo seconds if it blocks only the loop" in PAGE
    assert DEV_GRACE.total_seconds() == 1
    assert "in `dev` at most a second" in PAGE


def test_named_numbers_of_watching_are_the_defaults() -> None:
    assert HEARD_S == 3
    assert "waits up to three\nseconds until it hears itself" in PAGE
    assert PUBLISH_BYTES_MAX == 16_000
    assert "more than 16,000 bytes" in PAGE
    assert Limits().write_s == 10
    assert "nothing at all for ten seconds" in PAGE
