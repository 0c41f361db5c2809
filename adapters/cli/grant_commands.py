"""grant, grants, revoke: the commands about what agents may do with leave."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from threadhold.adapters.cli import tables
from threadhold.adapters.cli.connected import AsJson, Limit, Url, with_client
from threadhold.adapters.cli.durations import InvalidDuration, duration
from threadhold.adapters.cli.failure import OK
from threadhold.adapters.cli.listing import show_page
from threadhold.adapters.cli.looking import utc_now
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.client import Client
from threadhold.runner.grants import USES_MAX


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (grant, grants, revoke):
        app.command()(command)


def _lasts(text: str) -> timedelta:
    try:
        return duration(text)
    except InvalidDuration as error:
        raise typer.BadParameter(str(error)) from None


def grant(
    capability: Annotated[str, typer.Argument(help="What a rule of a policy names as its grant.")],
    uses: Annotated[int, typer.Option(min=1, max=USES_MAX, help="How often it may be used.")],
    principal: Annotated[str | None, typer.Option(help="Only by runs that act for it.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only by runs on it.")] = None,
    expires_in: Annotated[
        timedelta | None,
        typer.Option(
            parser=_lasts, metavar="TIME", help="Only so long: 90s, 30m, 1h, 7d; default until revoked."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    key: Annotated[str | None, typer.Option(help="The same key again is the same grant, made once.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Grant so many uses of a capability; for operators. Each is taken before the act, and none is given back."""
    terminal = Terminal(as_json=as_json)

    async def make(client: Client) -> int:
        made = await client.create_grant(
            capability,
            uses=uses,
            principal=principal,
            thread=thread,
            expires_in=expires_in,
            reason=reason,
            key=key,
        )
        terminal.record({"grant": asdict(made)})
        terminal.line(f"granted: {made.id}, {made.uses} of {made.capability} for {tables.meant_for(made)}")
        return OK

    with_client(url, make)


def grants(
    before: Annotated[str | None, typer.Option(help="Go on before this grant.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the grants that you may see, newest first."""
    terminal = Terminal(as_json=as_json)

    async def look(client: Client) -> int:
        found = await client.grants(before=before, limit=limit)
        now = utc_now()
        show_page(
            terminal,
            found,
            kind="grant",
            columns=tables.GRANT_COLUMNS,
            row=lambda each: tables.grant_row(each, now),
            before=before,
            limit=limit,
        )
        return OK

    with_client(url, look)


def revoke(
    grant: Annotated[str, typer.Argument(help="The grant.")], as_json: AsJson = False, url: Url = None
) -> None:
    """Let a grant be used no more; for operators. What it was used for goes on."""
    terminal = Terminal(as_json=as_json)

    async def take(client: Client) -> int:
        revoked = await client.revoke_grant(grant)
        terminal.record({"grant": asdict(revoked)})
        terminal.line(f"revoked: {revoked.id}, used {revoked.used} of {revoked.uses}")
        return OK

    with_client(url, take)
