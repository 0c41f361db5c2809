"""What all commands share that talk to an API replica: their options, and the way in and out."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from threadhold.adapters.client import Client
from threadhold.adapters.settings import Settings

Url = Annotated[str | None, typer.Option(help="The API; default THREADHOLD_URL or http://127.0.0.1:8000.")]
Limit = Annotated[int, typer.Option(min=1, max=100, help="The newest so many.")]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; without it, all.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object per line on stdout, errors as JSON on stderr.")
]


def with_client(url: str | None, use: Callable[[Client], Coroutine[Any, Any, int]]) -> None:
    """Run a command with a client and exit with its code."""

    async def main() -> int:
        settings = Settings()
        async with Client(url or settings.url, token=settings.shown_token) as client:
            return await use(client)

    raise typer.Exit(asyncio.run(main()))
