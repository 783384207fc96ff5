"""The retry policy of a client: one for calls, answers, streams, subscriptions and connections.

Only failures in a row count. A connection that the server answered, and that lasted or delivered something, starts a
new count, so a proxy that cuts idle connections every minute never uses up the attempts.
"""

from __future__ import annotations

import random
from typing import Final

import trio
from attrs import define, field, frozen

from mcptrio._settings import check_fields
from mcptrio.errors import ConnectionLost, MCPTrioError, Overloaded, RequestTimeout

RETRYABLE: Final = (ConnectionLost, Overloaded, RequestTimeout)
"""Errors after which another attempt may work."""
LASTED: Final = 10.0
"""Seconds after which a connection counts as one that lasted."""


@frozen(kw_only=True)
class Reconnect:
    """The retry policy of a client, for a server that it has reached before.

    It applies to lost connections, broken streams, subscriptions, answers to the server, and calls that are safe to
    repeat: calls that cannot have arrived, lists and reads, and tools that the server declares read-only or idempotent.
    HTTP 429, 502, 503 and 504 are retried like a lost connection, after the pause of `Retry-After` if there is one.
    """

    tries: int = 8
    """Failed attempts in a row after which the client gives up; 0 turns retries off."""
    first: float = 0.2
    """The first pause in seconds; each further one is twice as long. Up to half of a pause is subtracted at random."""
    most: float = 30.0
    """The longest pause in seconds, also when the server asks for a longer one with `Retry-After`."""

    def __attrs_post_init__(self) -> None:
        check_fields(self, positive=("first", "most"), not_negative=("tries",))

    def pause(self, number: int) -> float:
        """Return the seconds to wait before retry `number`, which starts at 1."""
        most = min(self.first * 2.0 ** min(number - 1, 16), self.most)
        return random.uniform(most / 2, most)


@define(eq=False, repr=False)
class Retries:
    """A count of the consecutive failures of one operation that is retried."""

    policy: Reconnect
    limit: int = field()
    """Failures that are allowed."""
    failures: int = 0
    _pauses: int = 0

    @limit.default
    def _limit_of_policy(self) -> int:
        return self.policy.tries

    def failed(self, error: MCPTrioError) -> None:
        """Count a failed attempt.

        Raises:
            MCPTrioError: `error`, if no attempt is left.
        """
        self.failures += 1
        if self.failures > self.limit:
            raise error

    def answered(self, seconds: float, *, delivered: bool) -> bool:
        """Note a connection that was answered. If it lasted or delivered something, count from the start.

        The pauses become short again only after a connection that lasted: a server that ends every connection at once
        is asked less and less often, but not given up.

        Returns:
            Whether it lasted or delivered something.
        """
        lasted = seconds >= LASTED
        if lasted:
            self.reset()
        elif delivered:
            self.failures = 0
        return lasted or delivered

    def reset(self) -> None:
        """Forget all failures: the server works."""
        self.failures = self._pauses = 0

    async def pause(self, error: MCPTrioError | None = None, *, asked: float | None = None) -> None:
        """Wait before the next attempt.

        Args:
            error: How the last attempt failed; an `Overloaded` may say how long to wait.
            asked: The pause in seconds that the server asked for on a stream. It is followed exactly unless the last
                attempt failed.
        """
        self._pauses += 1
        if asked is not None and not self.failures:
            await trio.sleep(asked)
            return
        after = min(error.retry_after, self.policy.most) if isinstance(error, Overloaded) else 0.0
        await trio.sleep(max(self.policy.pause(self._pauses), after, asked or 0.0))
