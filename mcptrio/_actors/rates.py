"""How often something may happen: token buckets, one for each caller, bounded in number. Time comes from outside."""

from __future__ import annotations

import math
from typing import Final

from msgspec import field

from mcptrio._struct import Entity

_MOST: Final = 10_000


class Rates(Entity):
    """Each caller may do something `per_second` times a second, and `burst` times at once after a pause."""

    per_second: float
    burst: float
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """How much was left, and when."""

    def take(self, caller: str, now: float) -> float:
        """Take one; gives 0, or how many seconds are missing."""
        left, when = self._buckets.pop(caller, (self.burst, now))
        # A server that is served again, in another `trio.run`, has another clock: time never goes back.
        left = min(self.burst, left + max(0.0, now - when) * self.per_second)
        if len(self._buckets) >= _MOST:
            # The one that was not seen for the longest time: it is full again, or nearly.
            del self._buckets[next(iter(self._buckets))]
        wait = 0.0 if left >= 1 else (1 - left) / self.per_second
        self._buckets[caller] = (left if wait else left - 1, now)
        return wait


def whole_seconds(wait: float) -> int:
    """For `Retry-After`."""
    return max(1, math.ceil(wait))
