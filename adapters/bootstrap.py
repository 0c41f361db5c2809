"""The composition root."""


def open_runner() -> None:
    """Open."""
