"""What can go wrong with a measurement."""


class BenchError(Exception):
    """A measurement that could not be made; says why in one line."""

    code = "bench_failed"


class NothingCame(BenchError):
    """Something that was to be measured did not happen in time.

    Args:
        what: what was waited for.
        within: seconds.
    """

    code = "nothing_came"

    def __init__(self, what: str, within: float) -> None:
        super().__init__(
            f"{what} did not come within {within:g} s; run it again with --logs FOLDER and look there"
        )


class ProcessEnded(BenchError):
    """A process of the stack ended before it was ready.

    Args:
        name: which.
        said: the end of its log.
    """

    code = "process_ended"

    def __init__(self, name: str, said: str) -> None:
        super().__init__(f"{name} did not get ready; it said: {said[-600:].strip() or 'nothing'}")
