"""The lease of a worker, as a pure value: the time until which it may serve its sessions without the store.

The table is the specification; `docs/design/cluster.md` shows it. Other workers judge the lease by the clock of the
store, the worker itself by its own clock from before the renewal was sent. The clocks are never compared.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

RENEWALS: Final = 5
"""Renewals within one lease."""


class LeaseState(enum.Enum):
    """The state of a lease, as its worker knows it."""

    JOINING = "joining"
    """Not acknowledged yet: session requests get 503."""
    LIVE = "live"
    EXPIRED = "expired"
    """The store may have given its sessions to others: session requests get 503."""
    DRAINING = "draining"
    """Live, but it claims nothing (R12)."""


class LeaseEvent(enum.Enum):
    """An event in the life of a lease."""

    RENEWED = "renewal acknowledged"
    RAN_OUT = "lease ran out by the local clock"
    DECLARED_DEAD = "declared dead"
    DRAIN = "drain"


class LeaseAction(enum.Enum):
    """The reaction of a worker to a change of its lease."""

    NOTHING = "nothing"
    CHECK_EPOCHS = "check the epochs of all active sessions"
    NEW_ID = "lose all sessions and join under a new worker id"


_S, _E, _A = LeaseState, LeaseEvent, LeaseAction
LEASE_TABLE: Final[Mapping[tuple[LeaseState, LeaseEvent], tuple[LeaseState, LeaseAction]]] = {
    (_S.JOINING, _E.RENEWED): (_S.LIVE, _A.NOTHING),
    (_S.JOINING, _E.DECLARED_DEAD): (_S.JOINING, _A.NEW_ID),
    (_S.LIVE, _E.RENEWED): (_S.LIVE, _A.NOTHING),
    (_S.LIVE, _E.RAN_OUT): (_S.EXPIRED, _A.NOTHING),
    (_S.LIVE, _E.DECLARED_DEAD): (_S.JOINING, _A.NEW_ID),
    (_S.LIVE, _E.DRAIN): (_S.DRAINING, _A.NOTHING),
    (_S.EXPIRED, _E.RENEWED): (_S.LIVE, _A.CHECK_EPOCHS),
    (_S.EXPIRED, _E.DECLARED_DEAD): (_S.JOINING, _A.NEW_ID),
    (_S.DRAINING, _E.RENEWED): (_S.DRAINING, _A.NOTHING),
    (_S.DRAINING, _E.RAN_OUT): (_S.EXPIRED, _A.NOTHING),
    (_S.DRAINING, _E.DECLARED_DEAD): (_S.JOINING, _A.NEW_ID),
}
"""State and event -> next state and action. A pair that is missing changes nothing."""


class WorkerLease(Struct, frozen=True):
    """The lease of one worker."""

    seconds: float
    state: LeaseState = LeaseState.JOINING
    until: float = 0.0
    """By the local clock."""
    leaving: bool = False
    """Whether it drains: it stays so in every state."""

    @property
    def may_claim(self) -> bool:
        return self.state is LeaseState.LIVE

    def serves(self, now: float) -> bool:
        """Return whether session requests are served at a time of the local clock."""
        return self.state in (LeaseState.LIVE, LeaseState.DRAINING) and now < self.until

    def step(self, event: LeaseEvent) -> tuple[WorkerLease, LeaseAction]:
        """Return the lease after an event, and what is to be done."""
        state, action = LEASE_TABLE.get((self.state, event), (self.state, LeaseAction.NOTHING))
        leaving = self.leaving or event is LeaseEvent.DRAIN
        if leaving and state is LeaseState.LIVE:
            state = LeaseState.DRAINING
        return replace(self, state=state, leaving=leaving), action

    def renewed(self, sent: float) -> tuple[WorkerLease, LeaseAction]:
        """Return the lease after the acknowledgement of a renewal; it counts from when the renewal was sent."""
        return replace(self, until=max(self.until, sent + self.seconds)).step(LeaseEvent.RENEWED)

    def at(self, now: float) -> WorkerLease:
        """Return the lease at a time of the local clock."""
        return self if now < self.until else self.step(LeaseEvent.RAN_OUT)[0]
