"""What the pages say about the code is read off the code."""

import re

from tests.project.sources import ROOT
from threadhold.adapters.settings import Settings
from threadhold.runner.machine import RUN_TRANSITIONS

PAGE = (ROOT / "docs" / "how-it-works.md").read_text()


def test_table_of_transitions_is_the_one_in_the_code() -> None:
    table = PAGE.partition("<!-- table: run transitions -->")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (\w+) \| ([\w, ]*)\|$", table, re.MULTILINE))
    assert rows.pop("from").strip() == "to"
    written = {
        before: {after.strip() for after in afters.split(",")} - {""} for before, afters in rows.items()
    }
    assert written == {
        before.value: {after.value for after in afters} for before, afters in RUN_TRANSITIONS.items()
    }


def test_named_files_exist() -> None:
    named = re.findall(r"`((?:runner|storage|claims|fanout|adapters)/[\w/.]*)`", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_named_times_are_the_defaults() -> None:
    assert Settings.model_fields["renew_every"].default.total_seconds() == 1.5
    assert "each 1.5 s" in PAGE
