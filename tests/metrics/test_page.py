"""The page on operations and the code name the same metrics, spans, events and causes."""

import os
import re
import shutil
import subprocess
from collections import defaultdict

import pytest

from tests.metrics.conftest import Process, read
from tests.project.sources import ROOT, product_files
from tests.support.processes import Processes
from threadhold.adapters.cli.reasons import CAUSES
from threadhold.adapters.metrics import sampling
from threadhold.adapters.settings import Settings
from threadhold.claims.blocks import BLOCKED_AFTER_S
from threadhold.claims.renewals import BATCH_MAX, LOOP_DEAD_AFTER_S
from threadhold.runner.machine import FailReason, StopReason

PAGE = (ROOT / "docs" / "operations.md").read_text()
ROWS = re.findall(r"^\| `threadhold_(\w+?)(?:\{([\w,]+)\})?` \|", PAGE, re.MULTILINE)
PARTS = re.compile(r"_(bucket|count|sum|total|created)$")
LEVELS = {"exception": "error"}


async def families(process: Process) -> dict[str, set[str]]:
    """Return the metrics of ours that a process shows, with the labels that they have, if anything was counted."""
    await process.rests((await process.send("say hello"))["run"])
    await process.client.post(f"/v1/runs/{(await process.send('say hi'))['run']}/stop")
    text = await process.text()
    shown: dict[str, set[str]] = {
        name: set() for name in re.findall(r"^# TYPE threadhold_(\w+) \w+$", text, re.MULTILINE)
    }
    for name, labels in read(text):
        short = name.removeprefix("threadhold_")
        short = short if short in shown else PARTS.sub("", short)
        if short in shown:
            shown[short] |= {label for label, _ in labels if label != "le"}
    return shown


async def test_each_metric_is_on_the_page_and_each_on_the_page_exists(process: Process) -> None:
    shown = await families(process)
    named = {name: set(labels.split(",")) if labels else set() for name, labels in ROWS}
    assert len(named) == len(ROWS)
    assert set(shown) == set(named)
    counted = {name: labels for name, labels in shown.items() if labels}
    assert counted == {name: named[name] for name in counted}
    assert len(counted) > 10


def test_each_alert_asks_for_metrics_and_labels_that_exist() -> None:
    alerts = " ".join(
        line.rpartition(" | ")[2] for line in PAGE.splitlines() if line.startswith("| `threadhold")
    )
    labels: dict[str, set[str]] = defaultdict(set)
    for name, asked in re.findall(r"threadhold_(\w+)(?:\{(.*?)[=~])?", alerts):
        short = name if name in dict(ROWS) else PARTS.sub("", name)
        assert short in dict(ROWS), name
        labels[short] |= {asked} if asked else set()
    allowed = {name: set(text.split(",")) for name, text in ROWS}
    assert [name for name, asked in labels.items() if not asked <= allowed[name]] == []


def test_each_event_of_the_log_is_on_the_page_with_its_level() -> None:
    source = "\n".join(path.read_text() for path in product_files())
    calls = re.findall(r'\blog\.(info|warning|error|exception)\(\s*"(\w+)"', source)
    said = {(event, LEVELS.get(level, level)) for level, event in calls}
    said |= {(event, "warning") for event in re.findall(r'\bevery\([^"]*"(\w+)"', source)}
    named = re.findall(r"^\| `(\w+)` \| (info|warning|error) \|", PAGE, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(named) == said
    assert named == sorted(named)


def test_each_span_is_on_the_page_with_its_attributes() -> None:
    rows = re.findall(r"^\| `threadhold\.(\w+)` \|[^|]*\| (.*) \|$", PAGE, re.MULTILINE)
    runner = "\n".join(path.read_text() for path in product_files() if path.parent.name == "runner")
    opened = re.findall(r'\bspan\(\s*"(\w+)"', runner)
    assert sorted(name for name, _ in rows) == sorted(opened)
    told = {key for _, cell in rows for key in re.findall(r"`(\w+)`", cell)}
    given = " ".join(re.findall(r"\b(?:tell|span)\(([^)]*)\)", runner, re.DOTALL))
    assert told == set(re.findall(r"\b(\w+)=", given))


def test_causes_and_reasons_are_those_of_the_code() -> None:
    causes = PAGE.partition("| cause |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w ]+)` \|", causes, re.MULTILINE)) == set(CAUSES)
    reasons = PAGE.partition("for the reason ")[2].partition("Attempts are")[0]
    named = set(re.findall(r"`(\w+)`", reasons)) - {"stopped"}
    assert named == {*FailReason, *StopReason}


def test_numbers_and_settings_are_those_of_the_code() -> None:
    assert (sampling.FRESH_S, sampling.WITHIN_S, BATCH_MAX) == (5, 2, 500)
    assert (BLOCKED_AFTER_S, LOOP_DEAD_AFTER_S) == (2, 60)
    assert Settings().grace.total_seconds() == 20
    named = re.findall(r"THREADHOLD_(\w+)", PAGE)
    assert {name.lower() for name in named} == {"metrics_port", "metrics_host"}
    assert Settings().metrics_host == "127.0.0.1"


# The page is typed as it stands, with a program that a machine of one's own may not have.
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_command_reads_them(spawn: Processes) -> None:
    (command,) = re.findall(r"<!-- run: scrape -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    _, url = spawn.api()
    env = {**os.environ, "TOKEN": "of nobody"}
    done = subprocess.run(
        ["sh", "-c", command.replace("http://127.0.0.1:8000", url)],
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert read(done.stdout)["threadhold_postgres_up", frozenset()] == 1
