"""The commands, from their arguments to their exit codes."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import threadhold.adapters
from tests.cli.conftest import Api, RunCli
from threadhold.adapters.cli import client_commands
from threadhold.adapters.cli.failure import FAILED, failure_of
from threadhold.adapters.http.errors import Unauthenticated
from threadhold.adapters.settings import Settings
from threadhold.runner.errors import Unavailable

NOBODY = "http://127.0.0.1:9"
APP = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from threadhold.runner.app import Threadhold

app = Threadhold(agents={"echo": Agent(TestModel())})
"""


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a text."""
    return [json.loads(line) for line in text.splitlines()]


def test_send_prints_the_answer_and_nothing_else_on_stdout(api: Api, run_cli: RunCli) -> None:
    sent = run_cli("send", "hello", "--agent", "support", "--url", api.url)
    assert (sent.code, sent.out) == (0, "echo: hello\n")
    assert sent.err.startswith("started: thread ")


def test_send_to_a_thread_needs_no_agent(api: Api, run_cli: RunCli) -> None:
    thread = api.runner.add_thread()
    sent = run_cli("send", thread, "hello", "--no-wait", "--key", "k", "--on-busy", "queue", "--url", api.url)
    assert (sent.code, sent.out) == (0, f"queued: thread {thread}\n")
    given = {"thread": thread, "content": "hello", "key": "k", "agent": None, "on_busy": "queue"}
    assert ("send", given) in api.runner.calls


def test_send_reads_stdin(api: Api, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_commands, "stdin_text", lambda: "two\nlines")
    sent = run_cli("send", "-", "--agent", "support", "--url", api.url)
    assert (sent.code, sent.out) == (0, "echo: two\nlines\n")


def test_send_json_is_a_receipt_and_frames(api: Api, run_cli: RunCli) -> None:
    sent = run_cli("send", "hi", "--agent", "support", "--json", "--url", api.url)
    lines = objects(sent.out)
    assert (sent.code, sent.err) == (0, "")
    assert lines[0]["receipt"]["disposition"] == "started"
    assert [line["kind"] for line in lines[1:]] == ["fact", "fact", "event", "event", "fact", "fact", "end"]
    assert all("cursor" in line and "op" not in line for line in lines[1:])


def test_a_failed_run_is_exit_code_1(api: Api, run_cli: RunCli) -> None:
    sent = run_cli("send", "fail", "--agent", "support", "--url", api.url)
    assert (sent.code, sent.out) == (1, "the run failed (error): no luck\n")


def test_a_refusal_is_one_line_or_one_object(api: Api, run_cli: RunCli) -> None:
    refused = run_cli("send", "hi", "--agent", "nobody", "--url", api.url)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "threadhold: there is no agent 'nobody'; this app has: support, other\n"
    refused = run_cli("send", "", "--agent", "support", "--json", "--url", api.url)
    assert (refused.code, refused.out) == (1, "")
    assert objects(refused.err)[0]["code"] == "invalid_input"


def test_an_agent_must_be_named_if_there_are_several(api: Api, run_cli: RunCli) -> None:
    refused = run_cli("send", "hi", "--url", api.url)
    assert (refused.code, refused.err) == (2, "threadhold: which agent? this app has: support, other\n")


def test_nobody_listening_is_exit_code_3(run_cli: RunCli) -> None:
    away = run_cli("send", "hi", "--agent", "a", "--json", "--url", NOBODY)
    assert (away.code, away.out) == (3, "")
    assert objects(away.err)[0]["code"] == "unreachable"
    assert NOBODY in objects(away.err)[0]["message"]


@pytest.mark.parametrize(
    "args",
    [
        ["send"],
        ["send", "a", "b", "c"],
        ["send", "hi", "--on-busy", "shout"],
        ["stop"],
        ["stop", "t", "--run", "r"],
        ["stop", "t", "--wait", "-1"],
        ["serve"],
        ["dev", "x:app", "--port", "99999"],
        ["frobnicate"],
        ["tail", "t", "--url", "nonsense"],
        ["send", "hi", "--url", "http://127.0.0.1:99999"],
        ["send", "hi", "--url", "http://[::1"],
        ["send", "hi", "--url", "http://a\tb:x"],
        ["serve", ".:app"],
        ["worker", "nowhere/x.py:app"],
    ],
)
def test_wrong_usage_is_exit_code_2(run_cli: RunCli, args: list[str]) -> None:
    refused = run_cli(*args)
    assert refused.code == 2
    assert "Traceback" not in refused.err


def test_settings_that_do_not_fit_are_named(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADHOLD_CAPACITY", "none")
    refused = run_cli("tail", "t")
    assert refused.code == 2
    assert refused.err.startswith("threadhold: THREADHOLD_CAPACITY: ")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GRACE", "soon", "THREADHOLD_GRACE: 'soon' is no duration; write seconds or ISO 8601 (20, PT20S)"),
        (
            "RENEW_EVERY",
            "99",
            "THREADHOLD_RENEW_EVERY must be positive and shorter than THREADHOLD_CLAIM_TTL ",
        ),
    ],
)
def test_settings_are_named_as_people_set_them(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"THREADHOLD_{name}", value)
    assert run_cli("tail", "t").err.startswith(f"threadhold: {said}")


def test_ctrl_c_while_the_commands_are_imported_leaves_without_a_word(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "threadhold.adapters.cli.entry":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "threadhold.adapters.cli.entry", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    ended = run_cli("--help")
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_who_shows_no_token_is_told_where_it_belongs() -> None:
    failure = failure_of(Unauthenticated("nobody here has this token", reason="unknown"))
    assert failure.message == "nobody here has this token (commands show the token in THREADHOLD_TOKEN)"
    assert failure.exit_code == FAILED


def test_the_help_tells_the_exit_codes(run_cli: RunCli) -> None:
    helped = run_cli("--help")
    assert helped.code == 0
    assert "3 server or database not reachable" in helped.out


def test_tail_prints_a_line_per_frame_and_goes_on_from_a_cursor(api: Api, run_cli: RunCli) -> None:
    thread = objects(
        run_cli("send", "hi", "--agent", "support", "--no-wait", "--json", "--url", api.url).out
    )[0]
    id = thread["receipt"]["thread"]
    told = run_cli("tail", id, "--until-idle", "--url", api.url)
    assert told.code == 0
    assert [line.split()[2] for line in told.out.splitlines()] == [
        "message_accepted", "run_started", "part_start", "part_delta", "model_called", "run_ended", "end",
    ]  # fmt: skip
    rest = run_cli("tail", id, "--after", "3-1-0", "--until-idle", "--json", "--url", api.url)
    assert [line["kind"] for line in objects(rest.out)] == ["fact", "end"]


def test_tail_prints_only_the_kinds_that_were_asked_for(api: Api, run_cli: RunCli) -> None:
    receipt = run_cli("send", "hi", "--agent", "support", "--no-wait", "--json", "--url", api.url).out
    id = objects(receipt)[0]["receipt"]["thread"]
    both = run_cli(
        "tail", id, "--kind", "event", "--kind", "draft", "--until-idle", "--json", "--url", api.url
    )
    assert [line["kind"] for line in objects(both.out)] == ["event", "event", "end"]
    facts = run_cli("tail", id, "--kind", "fact", "--until-idle", "--json", "--url", api.url)
    assert [line["kind"] for line in objects(facts.out)] == ["fact"] * 4 + ["end"]
    refused = run_cli("tail", id, "--kind", "facts", "--url", api.url)
    assert refused.code == 2
    assert "kinds are one or more of fact, event, draft" in " ".join(refused.err.split())


def test_tail_of_a_thread_that_is_not_there(api: Api, run_cli: RunCli) -> None:
    refused = run_cli("tail", "11111111-1111-4111-8111-111111111111", "--url", api.url)
    assert (refused.code, refused.out) == (1, "")
    assert "there is no thread" in refused.err


def test_stop_tells_what_it_did(api: Api, run_cli: RunCli) -> None:
    thread = api.runner.add_thread()
    late = run_cli("stop", thread, "--wait", "0.05", "--url", api.url)
    assert (late.code, late.out) == (1, "run run-1: the stop is recorded, the run has not ended yet\n")
    assert run_cli("stop", thread, "--wait", "0", "--url", api.url).code == 0
    api.runner.stop_may_end.set()
    done = run_cli("stop", "--run", "run-1", "--json", "--url", api.url)
    assert done.code == 0
    assert objects(done.out)[0]["stop"]["settled"] is True


class FakeProcesses(ModuleType):
    """Stands for the processes; notes how they are called and raises what a test wants."""

    def __init__(self) -> None:
        super().__init__("threadhold.adapters.processes")
        self.run = asyncio.run
        self.called: dict[str, Any] = {}
        self.broken: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def dev(
        self, app: Any, settings: Settings, *, on_ready: Callable[[str], Awaitable[None]], **given: Any
    ) -> None:
        """Be ready at once and end."""
        self._note(app, settings, given)
        await on_ready("http://127.0.0.1:1234")

    async def serve(self, app: Any, settings: Settings, **given: Any) -> None:
        """End at once."""
        self._note(app, settings, given)

    async def worker(self, app: Any, settings: Settings, **given: Any) -> None:
        """End at once."""
        self._note(app, settings, given)

    async def executor(self, app: Any, settings: Settings, **given: Any) -> None:
        """End at once."""
        self._note(app, settings, given)

    async def migrate(self, settings: Settings) -> list[str]:
        """Apply two."""
        self._note(None, settings, {})
        return ["0001", "0002"]

    async def audit(self, settings: Settings) -> list[dict[str, Any]]:
        """Find what a test wants to be broken."""
        self._note(None, settings, {})
        return self.broken

    def _note(self, app: Any, settings: Settings, given: dict[str, Any]) -> None:
        self.called = {"app": app, "settings": settings, **given}
        if self.error is not None:
            raise self.error


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProcesses:
    """Replace the processes, in a folder with an app."""
    made = FakeProcesses()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(threadhold.adapters, "processes", made, raising=False)
    (tmp_path / "an_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "an_app", raising=False)
    return made


def test_dev_says_where_it_is_and_what_to_do_next(fake: FakeProcesses, run_cli: RunCli) -> None:
    ended = run_cli("dev", "an_app.py:app", "--port", "0", "--capacity", "7")
    assert ended.code == 0
    assert "ready: http://127.0.0.1:1234   agents: echo" in ended.out
    assert "threadhold chat echo --url http://127.0.0.1:1234" in ended.out
    assert fake.called["settings"].capacity == 7
    assert (fake.called["host"], fake.called["port"]) == ("127.0.0.1", 0)
    assert fake.called["app"].names == ("echo",)


def test_serve_and_worker_pass_their_options_on(fake: FakeProcesses, run_cli: RunCli) -> None:
    assert run_cli("serve", "an_app.py:app", "--host", "0.0.0.0").code == 0
    assert (fake.called["host"], fake.called["port"]) == ("0.0.0.0", 8000)
    assert run_cli("worker", "an_app.py:app", "--capacity", "3", "--name", "w").code == 0
    assert (fake.called["capacity"], fake.called["name"]) == (3, "w")


def test_migrate_tells_what_it_applied(fake: FakeProcesses, run_cli: RunCli) -> None:
    assert run_cli("migrate").out == "applied: 0001, 0002\n"
    assert objects(run_cli("migrate", "--json").out) == [{"applied": ["0001", "0002"]}]


def test_audit_prints_what_is_broken_and_fails_then(fake: FakeProcesses, run_cli: RunCli) -> None:
    assert run_cli("audit").out == "no broken invariant\n"
    assert (run_cli("audit", "--json").code, run_cli("audit", "--json").out) == (0, "")
    fake.broken = [{"invariant": "facts are gap-free", "thread_id": "t-1", "detail": "7"}]
    failed = run_cli("audit")
    assert (failed.code, failed.out) == (1, "broken: facts are gap-free (thread t-1, 7)\n")
    assert objects(run_cli("audit", "--json").out) == [{"broken": fake.broken[0]}]


def test_a_typed_error_of_a_process_is_one_line(fake: FakeProcesses, run_cli: RunCli) -> None:
    fake.error = Unavailable("the database does not answer")
    ended = run_cli("serve", "an_app.py:app")
    assert (ended.code, ended.err) == (3, "threadhold: the database does not answer\n")


def test_a_fault_of_our_own_is_one_line_that_says_where(fake: FakeProcesses, run_cli: RunCli) -> None:
    fake.error = KeyError("oops")
    ended = run_cli("worker", "an_app.py:app")
    assert ended.code == 1
    assert ended.err.startswith("threadhold: KeyError: 'oops' (")
    assert "Traceback" not in ended.err


def test_a_broken_app_is_one_line(fake: FakeProcesses, run_cli: RunCli) -> None:
    Path("broken_one.py").write_text("1 / 0\n")
    ended = run_cli("dev", "broken_one.py:app", "--json")
    assert (ended.code, ended.out) == (2, "")
    assert objects(ended.err) == [
        {"code": "bad_target", "message": "broken_one.py, line 1: ZeroDivisionError: division by zero"}
    ]


def test_ctrl_c_leaves_without_a_word(fake: FakeProcesses, run_cli: RunCli) -> None:
    async def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    fake.serve = interrupted  # type: ignore[method-assign]
    ended = run_cli("serve", "an_app.py:app")
    assert (ended.code, ended.out, ended.err) == (130, "", "")
