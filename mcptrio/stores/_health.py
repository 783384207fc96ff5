"""The health of a durable store: whether it is degraded, and the announcements of outages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

logger = logging.getLogger("mcptrio.stores")

RECOVERED_AFTER: Final = 5.0
"""Seconds without trouble after which the end of an outage is announced, so that a burst is one outage."""


class Health:
    """The present problem of a store, and whether an outage was announced.   Borrows: `on_state`."""

    def __init__(self, on_state: Callable[[str | None], None] | None) -> None:
        self.on_state = on_state
        self.problem: str | None = None
        self._announced = False
        self._trouble_at = 0.0

    def degrade(self, reason: str) -> None:
        """Note a problem; announce it unless an outage is announced already."""
        self.problem, self._trouble_at = reason, trio.current_time()
        if not self._announced:
            self._announced = True
            logger.error("the store is degraded, events are not durable: %s", reason)
            self._report()

    def recover(self) -> None:
        self.problem = None
        self.check()

    def check(self) -> None:
        """Announce the end of an outage after a time without trouble. The janitor calls it at intervals."""
        if self._announced and self.problem is None and trio.current_time() - self._trouble_at >= RECOVERED_AFTER:
            self._announced = False
            logger.warning("the store has recovered, events are durable again")
            self._report()

    def _report(self) -> None:
        if self.on_state is not None:
            try:
                self.on_state(self.problem)
            except Exception:
                logger.exception("the listener to the state of the store failed")
