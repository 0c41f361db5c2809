"""What the gate answers when nobody behind it can."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from threadhold.adapters.http.gate import Gate
from threadhold.runner.records import Principal


@pytest.mark.parametrize("where", ["behind the gate", "while it is asked who calls"])
async def test_a_request_that_is_cut_off_by_the_end_of_the_process_is_told_to_come_again(where: str) -> None:
    entered = asyncio.Event()

    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    async def hangs(scope: Scope, receive: Receive, send: Send) -> None:
        await hang()

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def anybody(_: Any) -> Principal:
        if where == "while it is asked who calls":
            await hang()
        return Principal(id="me", workspace="home")

    gate = Gate(hangs, origins=frozenset(), hosts=None, authenticate=anybody)
    scope = {"type": "http", "method": "GET", "path": "/v1/threads", "headers": [], "query_string": b""}
    asked = asyncio.create_task(gate(scope, receive, send))
    await entered.wait()
    asked.cancel()
    await asked
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["code"] == "closed"
