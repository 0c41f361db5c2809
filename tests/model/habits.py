"""What a walk likes to do, so that its steps lead somewhere."""

from datetime import timedelta
from typing import Final

from tests.model import state

MESSAGES_MAX = 9
ASKED: Final = (
    (state.Request(0, state.QUESTION),),
    (state.Request(0, state.APPROVAL, other_only=True), state.Request(0, state.QUESTION)),
    (
        state.Request(0, state.APPROVAL, other_only=True),
        state.Request(0, state.APPROVAL, expires=state.LATER),
    ),
    (state.Request(0, state.EXTERNAL, expires=state.LATER),),
    (state.Request(0, state.APPROVAL, expires=state.LATER), state.Request(0, state.APPROVAL)),
)
# Which steps are likelier where, since they lead somewhere.
EAGER: Final = {
    "idle": {"send", "hold"},
    state.PENDING: {"claim"},
    state.RUNNING: {"pause"},
    state.PAUSED: {"answer", "come_late"},
}
QUIET, LONG_UP = timedelta(0), timedelta(days=1)
