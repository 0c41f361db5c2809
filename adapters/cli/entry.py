"""The commands, and the one place where an error becomes a line and an exit code."""

import os
import sys
from typing import Final

import typer

from threadhold.adapters.cli import (
    client_commands,
    export_command,
    grant_commands,
    inspection_commands,
    operator_commands,
    process_commands,
    ps_command,
    spend_command,
    tries_commands,
)
from threadhold.adapters.cli.failure import EXIT_CODES, INTERRUPTED, failure_of
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.mcp import command as mcp_command

app: Final = typer.Typer(
    name="threadhold",
    help=f"Run pydantic-ai agents in durable, shared threads. {EXIT_CODES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
process_commands.register(app)
client_commands.register(app)
ps_command.register(app)
operator_commands.register(app)
inspection_commands.register(app)
tries_commands.register(app)
grant_commands.register(app)
spend_command.register(app)
export_command.register(app)
mcp_command.register(app)


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark; that is no reason to end.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="threadhold")
    except BrokenPipeError:
        _hang_up()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        failure = failure_of(error)
        Terminal(as_json="--json" in sys.argv).failure(failure)
        sys.exit(failure.exit_code)


def _hang_up() -> None:
    """Leave quietly when the reader of our output has left, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)
