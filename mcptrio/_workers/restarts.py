"""When a worker that died is started again: a pure value, which is given the time."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

WINDOW: Final = 30.0
"""Seconds in which deaths are counted."""
SPARE: Final = 2
"""Deaths within the window that are tolerated in addition to one per worker."""
EARLY_MAX: Final = 3
"""Deaths in a row before any worker was ready that end the start."""
_AT_ONCE: Final = 2  # restarts of a slot without a delay
_FIRST_DELAY: Final = 0.2
_MAX_DELAY: Final = 5.0

EXIT_NOT_STARTED: Final = 1
EXIT_TOO_MANY_DEATHS: Final = 70
"""EX_SOFTWARE of sysexits.h: the service manager starts the parent again, or reports it."""


@frozen
class Restart:
    """Start the slot's worker again after `delay` seconds."""

    delay: float


@frozen
class GiveUp:
    """End the remaining workers and exit with `code`."""

    code: int
    reason: str


@frozen
class Death:
    """The death of a worker that was not asked to end."""

    at: float
    slot: int
    counted: bool


@frozen
class RestartPolicy:
    """The deaths of a cluster so far, as far as they decide about the next restart.

    At most `workers + SPARE` deaths within the window are tolerated, in the style of OTP. A worker that cannot start
    while others serve (its file was broken meanwhile, the store is down) is not counted, only delayed: ending the
    workers that serve would make it worse.
    """

    workers: int
    deaths: tuple[Death, ...] = ()
    early: int = 0
    """Deaths in a row before any worker was ready."""
    served: bool = False
    """Whether a worker was ever ready."""

    def ready(self) -> RestartPolicy:
        """Return the policy after a worker became ready."""
        return evolve(self, served=True, early=0)

    def died(
        self, slot: int, now: float, *, was_ready: bool, others_ready: bool
    ) -> tuple[RestartPolicy, Restart | GiveUp]:
        """Return the policy after a death, and what to do about it."""
        death = Death(now, slot, counted=was_ready or not others_ready)
        recent = (*(one for one in self.deaths if one.at > now - WINDOW), death)
        early = 0 if self.served else self.early + 1
        after = evolve(self, deaths=recent, early=early)
        if early >= EARLY_MAX:
            return after, GiveUp(EXIT_NOT_STARTED, f"{early} workers in a row died before they were ready")
        counted = sum(one.counted for one in recent)
        if counted > self.workers + SPARE:
            return after, GiveUp(EXIT_TOO_MANY_DEATHS, f"{counted} workers died within {WINDOW:g} seconds")
        return after, Restart(delay_before(sum(one.slot == slot for one in recent)))


def delay_before(restart: int) -> float:
    """Return the delay before the n-th restart of a slot within the window: 0, 0, 0.2, 0.4 … 5 seconds."""
    if restart <= _AT_ONCE:
        return 0.0
    return min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** min(restart - _AT_ONCE - 1, 16))
