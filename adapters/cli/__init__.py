"""The command line: what a newcomer types first, and what an operator types at night."""

from threadhold.adapters.cli.entry import main

__all__ = ["main"]
