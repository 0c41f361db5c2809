"""The commands of whoever is on call, from their arguments to their exit codes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Api, RunCli
from tests.cli.test_commands import objects
from tests.http.records import request_of, run_of, why_of, worker_of
from threadhold.runner.errors import Closed, NotFound, OperatorsOnly
from threadhold.runner.machine import RunStatus

PENDING, PAUSED, ENDED = "run-2", "run-3", "run-4"


@pytest.fixture
def busy(api: Api) -> Api:
    """Return an API with a run in each kind of status."""
    now = datetime.now(UTC)
    failed = {"status": RunStatus.FAILED, "reason": "error", "error": {"message": "boom"}, "ended_at": now}
    runs = [
        run_of(created_at=now - timedelta(days=30)),
        run_of(PENDING, status=RunStatus.PENDING, attempt=0, agent="other", created_at=now),
        run_of(PAUSED, status=RunStatus.PAUSED, stop_requested=True, created_at=now),
        run_of(ENDED, created_at=now, **failed),
    ]
    api.runner.known_runs = {run.id: run for run in runs}
    asked = (request_of("q1"), request_of("q2"), request_of("q3", kind="question"))
    api.runner.reasons = {
        PENDING: why_of(runs[1], has_worker=False),
        PAUSED: why_of(runs[2], requests=(*asked, request_of("old", status="answered"))),
    }
    return api


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table that was printed into a pipe."""
    return [[cell.strip() for cell in line.rstrip().split("  ") if cell] for line in text.splitlines()]


def test_ps_shows_where_each_run_is(busy: Api, run_cli: RunCli) -> None:
    listed = run_cli("ps", "--url", busy.url)
    assert listed.code == 0
    told = {row[0]: row[1:] for row in rows(listed.out)}
    assert told["RUN"] == ["AGENT", "FOR", "STATUS", "ATTEMPT", "AGE", "WHERE"]
    assert told["run-1"] == ["support", "local", "running", "1", "30 d", "w1-0123456789ab"]
    assert (told[PENDING][0], told[PENDING][-1]) == ("other", "no worker has this agent")
    assert told[PAUSED][-1] == "waits for 2 approvals and 1 question, stop requested"
    assert ENDED not in told


def test_ps_shows_ended_runs_and_chosen_ones(busy: Api, run_cli: RunCli) -> None:
    everything = run_cli("ps", "--all", "--url", busy.url)
    assert "error: boom" in everything.out
    paused = run_cli(
        "ps", "--status", "paused", "--status", "failed", "--agent", "support", "--url", busy.url
    )
    assert [row[0] for row in rows(paused.out)[1:]] == [ENDED, PAUSED]
    none = run_cli("ps", "--agent", "nobody", "--url", busy.url)
    assert (none.code, none.out) == (0, "no such runs\n")


def test_ps_json_is_an_object_per_run(busy: Api, run_cli: RunCli) -> None:
    lines = {line["run"]["id"]: line for line in objects(run_cli("ps", "--json", "--url", busy.url).out)}
    assert set(lines) == {"run-1", PENDING, PAUSED}
    assert lines["run-1"]["claim"]["worker"] == "w1-0123456789ab"
    assert lines[PENDING]["has_worker"] is False
    assert lines[PAUSED]["requests"] == ["q1", "q2", "q3"]


def test_ps_shows_a_run_that_ends_meanwhile_as_what_it_is(busy: Api, run_cli: RunCli) -> None:
    failed = run_of(status=RunStatus.FAILED, reason="abandoned", error={"message": "its worker died"})
    busy.runner.reasons["run-1"] = why_of(replace(failed, ended_at=datetime.now(UTC)))
    told = {row[0]: row[1:] for row in rows(run_cli("ps", "--url", busy.url).out)}
    assert (told["run-1"][2], told["run-1"][-1]) == ("failed", "abandoned: its worker died")
    lines = {line["run"]["id"]: line for line in objects(run_cli("ps", "--json", "--url", busy.url).out)}
    assert lines["run-1"]["run"]["status"] == "failed"
    assert "claim" not in lines["run-1"]


def test_nothing_runs(api: Api, run_cli: RunCli) -> None:
    api.runner.known_runs = {}
    assert run_cli("ps", "--url", api.url).out == "nothing runs\n"
    assert run_cli("stop", "--all", "--url", api.url).out == "nothing runs\n"
    assert run_cli("requests", "--url", api.url).out == "nothing waits for an answer\n"
    assert "no worker was seen" in run_cli("workers", "--url", api.url).out


def test_requests_are_listed_with_what_they_ask(api: Api, run_cli: RunCli) -> None:
    now = datetime.now(UTC)
    soon = request_of(
        "q1", created_at=now, expires_at=now + timedelta(hours=20, minutes=1), approvers=("bob",)
    )
    done = request_of("q2", status="denied", answered_by="eve")
    api.runner.known_requests = {"q1": soon, "q2": done}
    told = run_cli("requests", "--url", api.url)
    assert told.code == 0
    row = rows(told.out)[1]
    assert row[:2] + row[3:] == [
        "q1",
        "approval",
        "bob",
        'refund(order="A-1003", euros=240) (expires in 20 h)',
    ]
    assert "q2" not in told.out
    assert "(denied by eve)" in run_cli("requests", "--status", "any", "--url", api.url).out
    assert [
        line["request"]["id"] for line in objects(run_cli("requests", "--json", "--url", api.url).out)
    ] == ["q1"]


@pytest.mark.parametrize(
    ("args", "decision", "said"),
    [
        (["--approve"], {"kind": "approve"}, "approved"),
        (["--edit", '{"euros": 5}'], {"kind": "edit", "args": {"euros": 5}}, "approved with changes"),
        (["--reject"], {"kind": "reject"}, "rejected"),
        (["--reject", "too much"], {"kind": "reject", "reason": "too much"}, "rejected"),
        (["--reply", "XL"], {"kind": "reply", "value": "XL"}, "answered"),
        (["--reply", '{"size": "XL"}'], {"kind": "reply", "value": {"size": "XL"}}, "answered"),
    ],
)
def test_answer_decides(api: Api, run_cli: RunCli, args: list[str], decision: object, said: str) -> None:
    thread = api.runner.add_thread()
    api.runner.seqs[thread] = 0
    api.runner.known_requests["q1"] = request_of("q1", thread=thread)
    done = run_cli("answer", "q1", *args, "--url", api.url)
    assert (done.code, done.out) == (0, f"{said}; run run-1 goes on\n")
    assert api.runner.calls[-1][1]["decision"] == decision
    again = objects(run_cli("answer", "q1", *args, "--json", "--url", api.url).out)[0]["answer"]
    assert (again["duplicate"], again["decision"]) == (True, decision)


def test_answer_says_how_many_are_left(api: Api, run_cli: RunCli) -> None:
    thread = api.runner.add_thread()
    api.runner.seqs[thread] = 0
    api.runner.known_requests = {id: request_of(id, thread=thread) for id in ("q1", "q2")}
    assert (
        run_cli("answer", "q1", "--approve", "--url", api.url).out == "approved; run run-1 waits for 1 more\n"
    )
    again = run_cli("answer", "q1", "--approve", "--url", api.url)
    assert again.out == "approved before, by you; run run-1 waits for 1 more\n"


def test_a_refused_answer_is_exit_code_1(api: Api, run_cli: RunCli) -> None:
    refused = run_cli("answer", "nope", "--approve", "--url", api.url)
    assert (refused.code, refused.out) == (1, "")
    assert "there is no request 'nope'" in refused.err


@pytest.mark.parametrize(
    "args",
    [
        ["answer", "q"],
        ["answer", "q", "--approve", "--reject"],
        ["answer", "q", "--approve", "because"],
        ["answer", "q", "--edit", "5"],
        ["requests", "--status", "lost"],
        ["ps", "--status", "lost"],
        ["ps", "--all", "--status", "paused"],
        ["ps", "--limit", "101"],
        ["stop", "t", "--all"],
        ["stop", "t", "--agent", "a"],
        ["stop", "t", "--principal", "ada"],
        ["stop", "--run", "r", "--principal", "ada"],
        ["stop", "--principal", "ada", "--wait", "5"],
        ["stop", "--all", "--key", "k"],
        ["stop", "--all", "--wait", "5"],
        ["why"],
    ],
)
def test_wrong_usage_is_exit_code_2(run_cli: RunCli, args: list[str]) -> None:
    refused = run_cli(*args)
    assert refused.code == 2
    assert "Traceback" not in refused.err


def test_why_explains_a_run(busy: Api, run_cli: RunCli) -> None:
    told = run_cli("why", PENDING, "--url", busy.url)
    assert told.code == 0
    assert "no worker that is up has the agent 'other'" in told.out
    known = objects(run_cli("why", PENDING, "--json", "--url", busy.url).out)[0]["why"]
    assert (known["run"]["id"], known["has_worker"]) == (PENDING, False)
    assert run_cli("why", "nope", "--url", busy.url).code == 1


def test_workers_are_listed_and_drained(api: Api, run_cli: RunCli) -> None:
    now = datetime.now(UTC)
    api.runner.known_workers = [worker_of("w1-a", seen_at=now), worker_of("w2-b", seen_at=now, draining=True)]
    listed = rows(run_cli("workers", "--url", api.url).out)
    assert [[row[0], row[1], row[-1]] for row in listed] == [
        ["WORKER", "RUNS", "STATE"],
        ["w1-a", "1/50", "takes runs"],
        ["w2-b", "1/50", "leaving"],
    ]
    assert run_cli("drain", "w1", "--url", api.url).out == "asked to hand over and leave: w1-a\n"
    assert objects(run_cli("drain", "w", "--json", "--url", api.url).out) == [{"drain": ["w1-a", "w2-b"]}]
    unknown = run_cli("drain", "w9", "--url", api.url)
    assert (unknown.code, unknown.out) == (1, "")
    api.runner.raising["workers"] = OperatorsOnly("list workers")
    assert "only an operator may list workers" in run_cli("workers", "--url", api.url).err


def test_all_runs_of_an_agent_are_stopped(busy: Api, run_cli: RunCli) -> None:
    stopped = run_cli("stop", "--all", "--agent", "other", "--url", busy.url)
    assert (stopped.code, stopped.out) == (
        0,
        f"run {PENDING}: the stop is recorded, the run has not ended yet\n",
    )
    lines = objects(run_cli("stop", "--all", "--json", "--url", busy.url).out)
    assert len(lines) == 4
    assert lines[0]["stop"]["run"] == "run-1"


def test_all_runs_of_somebody_are_listed_and_stopped(busy: Api, run_cli: RunCli) -> None:
    busy.runner.known_runs[PENDING] = replace(busy.runner.known_runs[PENDING], principal="ada")
    assert [row[0] for row in rows(run_cli("ps", "--principal", "ada", "--url", busy.url).out)[1:]] == [
        PENDING
    ]
    told = run_cli("stop", "--principal", "ada", "--url", busy.url)
    assert (told.code, told.out.split()[1]) == (0, f"{PENDING}:")
    run_cli("stop", "--agent", "other", "--url", busy.url)
    asked = [given for name, given in busy.runner.calls if name == "stop_all"]
    assert asked == [{"agent": None, "principal": "ada"}, {"agent": "other", "principal": None}]
    busy.runner.raising["stop_all"] = OperatorsOnly("stop all runs of somebody else")
    refused = run_cli("stop", "--principal", "ada", "--url", busy.url)
    assert (refused.code, refused.err) == (
        1,
        "threadhold: only an operator may stop all runs of somebody else\n",
    )


def test_a_run_that_is_out_of_sight_meanwhile_is_listed_as_it_was(busy: Api, run_cli: RunCli) -> None:
    busy.runner.raising["why"] = NotFound("run", "run-1")
    told = {row[0]: row[1:] for row in rows(run_cli("ps", "--url", busy.url).out)}
    assert told["run-1"] == ["support", "local", "running", "1", "30 d"]
    busy.runner.raising["why"] = Closed()
    assert run_cli("ps", "--url", busy.url).code == 3


def test_a_message_that_ends_in_a_pause_says_how_to_answer(api: Api, run_cli: RunCli) -> None:
    sent = run_cli("send", "pay", "--agent", "support", "--url", api.url)
    assert sent.code == 0
    assert sent.out.endswith("(paused: the run waits for an answer)\n")
    asked = next(iter(api.runner.known_requests))
    assert f"answer {asked} --approve | --edit JSON | --reject [REASON]\n" in sent.err
