"""The command line: what a newcomer types first, and what an operator types at night."""

import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        # Here and not above: the imports take a second, in which Ctrl-C is as quiet as it is later.
        from threadhold.adapters.cli.entry import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["main"]
