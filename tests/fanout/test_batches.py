"""Calls of one script that are sent together: no one's fault is another's, and nobody waits after the end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError

from threadhold.fanout.batches import Batches


class Server:
    """A client, its script and its pipelines in one. It answers a call with what the call brings as its argument."""

    sha = "sha"

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.alone: list[Any] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None
        self._piped: list[Any] = []

    def register_script(self, text: str) -> "Server":
        return self

    async def __call__(self, *, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Take a call that was refused when it came with others."""
        self.alone.append(keys[0])
        if keys[0] == "refused again":
            raise args[0]
        return "taken alone"

    def pipeline(self, *, transaction: bool) -> "Server":
        assert not transaction
        self._piped = []
        return self

    def evalsha(self, sha: str, count: int, key: str, answer: Any) -> None:
        assert (sha, count) == ("sha", 1)
        self._piped.append(answer)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        self.batches.append(self._piped)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return self._piped


def calls(batches: Batches, answers: Sequence[Any]) -> list[asyncio.Task[Any]]:
    """Call so often at once."""
    return [asyncio.create_task(batches.call(["key"], [answer])) for answer in answers]


async def results(tasks: Sequence[asyncio.Task[Any]]) -> list[Any]:
    """Return what each call returned or raised, without waiting for any time-out but one that a test made short."""
    async with asyncio.timeout(20):
        return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command take longer than a test."""
    monkeypatch.setattr("threadhold.fanout.batches.COMMAND_MAX", 3600.0)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_called_meanwhile_goes_next_in_its_order_and_in_bounded_parts() -> None:
    server = Server()
    batches = Batches(server, "")
    server.open.clear()
    first = calls(batches, [0])
    await turns(5)
    rest = calls(batches, range(1, 101))
    await turns(5)
    server.open.set()
    assert await results(first + rest) == list(range(101))
    assert server.batches == [[0], list(range(1, 65)), list(range(65, 101))]


async def test_an_error_is_told_to_the_one_whose_call_it_was() -> None:
    error = ResponseError("the key holds something else")
    assert await results(calls(Batches(Server(), ""), ["a", error, None])) == ["a", error, None]


async def test_a_failure_of_all_is_told_to_all_and_the_next_are_sent() -> None:
    server = Server()
    batches = Batches(server, "")
    server.failure = RedisConnectionError("lost")
    assert await results(calls(batches, [1, 2])) == [server.failure] * 2
    server.failure = None
    assert await results(calls(batches, [3])) == [3]


@pytest.mark.parametrize("refusal", [NoScriptError("load it"), ReadOnlyError("a replica")], ids=repr)
async def test_what_a_server_cannot_do_together_is_called_alone(refusal: Exception) -> None:
    server = Server()
    batches = Batches(server, "")
    together = calls(batches, ["a", refusal])
    together.append(asyncio.create_task(batches.call(["refused again"], [refusal])))
    assert await results(together) == ["a", "taken alone", refusal]
    assert server.alone == ["key", "refused again"]


async def test_who_is_given_up_while_it_waits_in_line_is_not_sent() -> None:
    server = Server()
    batches = Batches(server, "")
    server.open.clear()
    first = calls(batches, [0])
    await turns(5)
    given_up, kept = calls(batches, [1, 2])
    await turns(5)
    given_up.cancel()
    server.open.set()
    assert await results([*first, kept]) == [0, 2]
    assert server.batches == [[0], [2]]


async def test_a_server_that_hangs_holds_nobody_up_for_longer_than_a_command_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadhold.fanout.batches.COMMAND_MAX", 0.01)
    server = Server()
    batches = Batches(server, "")
    server.open.clear()
    assert [type(each) for each in await results(calls(batches, [1]))] == [TimeoutError]


@pytest.mark.parametrize("begun", [1, 5], ids=["before the first was sent", "while some are under way"])
async def test_whoever_waits_at_the_end_is_told_at_once_and_is_not_cancelled(begun: int) -> None:
    server = Server()
    batches = Batches(server, "")
    server.open.clear()
    waiting = calls(batches, range(100))
    await turns(begun)
    sent = [64] * (begun > 1)
    assert [len(batch) for batch in server.batches] == sent
    await batches.aclose()
    assert {type(each) for each in await results(waiting)} == {RedisConnectionError}
    with pytest.raises(RedisConnectionError):
        await batches.call(["key"], [1])
    assert [len(batch) for batch in server.batches] == sent


async def test_an_end_without_a_call_is_one() -> None:
    await Batches(Server(), "").aclose()
