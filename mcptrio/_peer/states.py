"""The states of a stateful session, as a table. A transition that is not in it is illegal; the docs draw it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
    NEW = "new"
    """Before `initialize`."""
    OPEN = "open"
    """`initialize` was accepted; the client has not confirmed it yet."""
    READY = "ready"
    """Both sides may send requests."""


ANY_BUT_INITIALIZE: Final = "*"

# basic/lifecycle of every stateful revision: no requests but ping before `initialize` was answered. Between the answer
# and `notifications/initialized` early requests are served (real clients send them); a second initialize is refused.
OPENING: Final[Mapping[State, Mapping[str, State]]] = {
    State.NEW: {"initialize": State.OPEN, "ping": State.NEW},
    State.OPEN: {"notifications/initialized": State.READY, ANY_BUT_INITIALIZE: State.OPEN},
    State.READY: {ANY_BUT_INITIALIZE: State.READY},
}


def move(state: State, method: str) -> State | None:
    """Return the state after `method` arrived, or None for an illegal transition."""
    row = OPENING[state]
    if (after := row.get(method)) is not None:
        return after
    return row.get(ANY_BUT_INITIALIZE) if method != "initialize" else None
