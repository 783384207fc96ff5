"""Where a request of a session is served, as a pure value: the steps of the worker that received it.

The table is the specification; `docs/design/cluster.md` shows it. What the home worker does with a session (activate,
passivate, lose) is in the endpoint.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

MAX_DENIALS: Final = 3
"""Answers of other workers that a session is not there, after which a request is refused."""
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.2
UNREACHABLE_FOR: Final = 1.0
"""Seconds after which a worker that cannot be reached, but renews its lease, gets no more attempts."""


class RoutePlace(enum.Enum):
    """The state of a request at the worker that received it."""

    CLAIMING = "claiming"
    """The directory is asked."""
    REMOTE = "remote"
    """Another worker is its home: the request is forwarded."""
    DONE = "done"


class Outcome(enum.Enum):
    """An answer of the directory, or of another worker."""

    NONE = "there is no such session"
    MINE = "this worker is its home"
    AT = "another live worker is its home"
    ANSWERED = "the home has answered"
    NOT_HOME = "that worker does not have it"
    UNREACHABLE = "that worker cannot be reached, and nothing was sent"
    BROKEN = "the connection broke after the request was sent"


class RouteStep(enum.Enum):
    """The next step of the worker that received a request."""

    CLAIM = "ask the directory"
    PAUSE = "wait, then ask the directory"
    FORWARD = "forward the request"
    SERVE = "serve it here"
    REPLY = "pass on the answer"
    NOT_FOUND = "404"
    UNAVAILABLE = "503, Retry-After 1"
    MAY_HAVE_RUN = "the error that it may have been done"


REPORTED: Final = {
    RouteStep.REPLY: "answered",
    RouteStep.UNAVAILABLE: "unavailable",
    RouteStep.MAY_HAVE_RUN: "may_have_run",
}
"""The last steps of a forwarded request -> the outcomes in `mcptrio.telemetry.RequestForwarded`."""

_P, _O, _S = RoutePlace, Outcome, RouteStep
ROUTE_TABLE: Final[Mapping[tuple[RoutePlace, Outcome], tuple[RoutePlace, RouteStep]]] = {
    (_P.CLAIMING, _O.NONE): (_P.DONE, _S.NOT_FOUND),
    (_P.CLAIMING, _O.MINE): (_P.DONE, _S.SERVE),
    (_P.CLAIMING, _O.AT): (_P.REMOTE, _S.FORWARD),
    (_P.REMOTE, _O.ANSWERED): (_P.DONE, _S.REPLY),
    (_P.REMOTE, _O.NOT_HOME): (_P.CLAIMING, _S.CLAIM),  # at most MAX_DENIALS times
    (_P.REMOTE, _O.UNREACHABLE): (_P.CLAIMING, _S.PAUSE),  # at most until UNREACHABLE_FOR
    (_P.REMOTE, _O.BROKEN): (_P.DONE, _S.MAY_HAVE_RUN),  # R5: it is never sent again
}
"""RoutePlace and outcome -> next place and step. No other pair is possible."""


class SessionRoute(Struct, frozen=True):
    """The way of one request."""

    place: RoutePlace = RoutePlace.CLAIMING
    denials: int = 0
    failures: int = 0
    failing_since: float | None = None
    """When its home could not be reached for the first time."""
    lease: int = 0
    """The expiry of the home's lease at that time, by the clock of the store."""

    @property
    def pause(self) -> float:
        return min(FIRST_PAUSE * 2.0 ** max(0, self.failures - 1), LONGEST_PAUSE)

    def step(self, outcome: Outcome, now: float = 0.0, lease: int = 0) -> tuple[SessionRoute, RouteStep]:
        """Return the route after an outcome, and what is to be done.

        `now` and `lease`, the expiry of the lease of a worker that cannot be reached, count for UNREACHABLE only.
        """
        place, step = ROUTE_TABLE[self.place, outcome]
        route = replace(self, place=place)
        if outcome is Outcome.NOT_HOME:
            route = replace(route, denials=self.denials + 1)
            if route.denials > MAX_DENIALS:
                step = RouteStep.UNAVAILABLE
        elif outcome is Outcome.UNREACHABLE:
            if self.failing_since is None:
                route = replace(route, failing_since=now, lease=lease)
            elif now - self.failing_since >= UNREACHABLE_FOR and lease > self.lease:
                step = RouteStep.UNAVAILABLE  # it lives: only the way to it is broken
            route = replace(route, failures=self.failures + 1)
        return route, step
