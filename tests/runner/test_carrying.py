"""How calls of tools come out that raise: what the agent, the records and the log get of it."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import Agent, TextOutput
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry

from tests.runner.conftest import Bench, of_kind
from tests.runner.test_credentials import HUSH, KEY, carry
from tests.runner.test_unruly_agents import host
from tests.support.scripted import scripted_model
from threadhold import Binding, Hosted, RetryErrors, credential
from threadhold.runner.carrying import Carried
from threadhold.runner.credentials import PROCESS
from threadhold.runner.errors import ClaimLost, RunFailure
from threadhold.runner.returned import RETURNED_CHARS_MAX
from threadhold.runner.scrubbing import MARKER
from threadhold.runner.within import Interrupted

LONG = "zq7Rk2mW9xLtB4vN8cYdH3sJ6gFpA1eUo5iTqXwZrKyMbVnCsDhGjLfP"


async def raised(raise_it: Callable[[], Any]) -> Carried:
    async def act() -> Any:
        return raise_it()

    return await carry(act)


def connect(*, token: str) -> None:
    """Raise what says nothing of a secret, from code that does."""
    raise TimeoutError("slow")


async def test_an_error_is_the_same_although_the_code_that_raised_it_speaks_of_secrets() -> None:
    carried = await raised(lambda: connect(token=HUSH.strip()))
    assert (type(carried.raised), carried.error) == (TimeoutError, "slow")


@pytest.mark.parametrize("control", [Interrupted(), ClaimLost("t", 1)])
async def test_what_the_runner_itself_raises_within_a_tool_is_the_same(control: Exception) -> None:
    def act() -> None:
        try:
            raise LookupError(HUSH)
        except LookupError:
            raise control from None

    carried = await raised(act)
    assert carried.raised is control
    assert control.__context__ is None


def noted() -> Exception:
    error = LookupError("plain")
    error.add_note(f"with {HUSH}")
    return error


def grouped() -> Exception:
    return ExceptionGroup("many", [*(ValueError(str(number)) for number in range(20)), ValueError(HUSH)])


@pytest.mark.parametrize("make", [noted, grouped])
async def test_a_secret_in_a_note_or_in_one_of_many_errors_is_found(make: Callable[[], Exception]) -> None:
    def act() -> None:
        raise make()

    assert isinstance((await raised(act)).raised, RunFailure)


@pytest.mark.parametrize("given", [LONG, {"k": LONG}, [LONG, HUSH]])
async def test_a_validation_error_tells_nothing_of_a_secret_value(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: Any
) -> None:
    def fetch() -> str:
        """Read something."""
        credential()
        return str(TypeAdapter(dict[str, int]).validate_python(given))

    hosted = Hosted(
        Agent(scripted_model(), tools=[fetch]),
        tools={"fetch": Binding(credentials="github")},
        credentials={"github": lambda identity: LONG},
    )
    host(bench, monkeypatch, hosted)
    receipt = await bench.send("call fetch ;; say ok")
    facts = await bench.idle(receipt.thread)
    (returned,) = of_kind(facts, "tool_returned")
    assert (returned["outcome"], returned["type"]) == ("failed", "ValidationError")
    told = f"{facts} {await bench.history(receipt.thread)} {capsys.readouterr()}"
    assert LONG[:6] not in told
    assert LONG[-6:] not in told


async def test_a_validation_error_of_a_harmless_value_is_the_same() -> None:
    carried = await raised(lambda: TypeAdapter(int).validate_python("five"))
    assert isinstance(carried.raised, ValidationError)
    assert "five" in str(carried.error)


class Odd(BaseException):
    """No common error."""


@pytest.mark.parametrize("error", [Odd(f"odd {HUSH}"), GeneratorExit(), BaseExceptionGroup("all", [Odd()])])
async def test_whatever_a_tool_raises_comes_out(error: BaseException) -> None:
    def act() -> None:
        raise error

    carried = await raised(act)
    assert carried.outcome == "failed"
    assert isinstance(carried.raised, RunFailure)
    assert carried.raised.reason == type(error).__name__
    assert HUSH not in str(carried)


async def test_a_run_whose_tool_raises_no_common_error_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch() -> str:
        """Read something."""
        raise Odd("odd")

    host(bench, monkeypatch, Hosted(Agent(scripted_model(), tools=[fetch])))
    ended = of_kind(await bench.ask("call fetch"), "run_ended")[0]
    assert ended["error"] == {"type": "Odd", "message": "odd"}


async def test_a_run_is_tried_again_after_an_error_whose_code_speaks_of_secrets(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch() -> str:
        """Read something."""
        connect(token=HUSH.strip())
        return "read"

    again = RetryErrors(times=1, errors=(TimeoutError,), delay=timedelta(milliseconds=1))
    host(bench, monkeypatch, Hosted(Agent(scripted_model(), tools=[fetch]), after_error=again))
    facts = await bench.ask("call fetch ;; say ok")
    assert of_kind(facts, "attempt_started")[-1]["attempt"] == 2


@pytest.mark.parametrize("fails", [False, True])
async def test_what_an_output_function_says_that_takes_the_text_is_scrubbed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    tries = count()

    def told(text: str) -> str:
        if fails and next(tries) == 0:
            raise ModelRetry(f"not with {KEY}")
        return f"{text} with {KEY}"

    host(bench, monkeypatch, Hosted(Agent(scripted_model(), output_type=TextOutput(told))))
    receipt = await bench.send("say this ;; say that")
    ended = of_kind(await bench.idle(receipt.thread), "run_ended")[0]
    assert ended["output"] == f"{'that' if fails else 'this'} with {MARKER}"
    history = str(await bench.history(receipt.thread))
    assert (KEY in history, f"not with {MARKER}" in history) == (False, fails)


async def test_a_run_whose_output_function_raises_no_common_error_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(text: str) -> str:
        raise Odd("odd")

    host(bench, monkeypatch, Hosted(Agent(scripted_model(), output_type=TextOutput(told))))
    ended = of_kind(await bench.ask("say this"), "run_ended")[0]
    assert ended["error"] == {"type": "Odd", "message": "odd"}


async def test_what_a_thread_that_was_given_up_says_is_scrubbed_until_it_ends() -> None:
    gate, said = threading.Event(), asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def late() -> None:
        gate.wait()
        loop.call_soon_threadsafe(said.set_result, PROCESS.text(credential()), context=Context())

    carried = await carry(
        lambda: asyncio.to_thread(late), Binding(credentials="github", timeout=timedelta(milliseconds=20))
    )
    known = PROCESS.text(HUSH)
    gate.set()
    assert (carried.type, known, await said) == ("tool_timeout", MARKER, MARKER)


async def test_what_a_tool_says_of_a_call_that_it_puts_off_is_json_without_secrets() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)

    def act() -> None:
        raise ApprovalRequired(metadata={"at": when, "all": {HUSH}, "raw": KEY.encode(), "odd": b"\xff"})

    carried = await raised(act)
    assert isinstance(carried.raised, ApprovalRequired)
    told = carried.raised.metadata
    assert told is not None
    assert (told["at"], told["all"]) == ("2030-01-01T00:00:00Z", [MARKER])
    assert KEY not in str(told)


async def test_a_model_is_told_no_more_of_an_error_than_of_a_result() -> None:
    def act() -> None:
        raise ModelRetry("x" * 3_000_000)

    carried = await raised(act)
    assert isinstance(carried.raised, ModelRetry)
    assert len(carried.raised.message) < RETURNED_CHARS_MAX + 100
