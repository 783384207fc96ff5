"""Rate limits: one token bucket per caller, bounded in number. The caller passes the time."""

from __future__ import annotations

import math
from typing import Final

from msgspec import field

from mcptrio._struct import Entity

_MOST: Final = 10_000


class Rates(Entity):
    """Token buckets: each caller has `per_second` tokens a second, and at most `burst` of them."""

    per_second: float
    burst: float
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Caller -> tokens left, and the time of that count."""

    def take(self, caller: str, now: float, amount: int = 1) -> float:
        """Take tokens; return 0, or the seconds until enough are available."""
        left, when = self._buckets.pop(caller, (self.burst, now))
        # A server that runs again in another `trio.run` has another clock: never let time go back.
        left = min(self.burst, left + max(0.0, now - when) * self.per_second)
        if len(self._buckets) >= _MOST:
            # Evict the bucket that is unused for the longest time: it is full again, or nearly.
            del self._buckets[next(iter(self._buckets))]
        amount = min(amount, max(1, int(self.burst)))  # more than the burst could never be taken
        wait = 0.0 if left >= amount else (amount - left) / self.per_second
        self._buckets[caller] = (left if wait else left - amount, now)
        return wait


def whole_seconds(wait: float) -> int:
    """Round up to whole seconds, for `Retry-After`."""
    return max(1, math.ceil(wait))
