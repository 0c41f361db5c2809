"""Lets a Python run the command line by module name, as `dev --chat` does for its servers."""

from threadhold.adapters.cli import main

main()
