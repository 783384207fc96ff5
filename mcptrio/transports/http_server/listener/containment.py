"""The guard of a connection: whatever serving it raises ends that connection, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf

import trio

from mcptrio import telemetry

logger = logging.getLogger("mcptrio.http")


async def contain(run: Callable[[], Awaitable[None]], hub: telemetry.Hub, client: str) -> bool:
    """Run one connection behind its guard: log what it raises, let only real cancellation through.

    Return whether nothing was raised.
    """
    try:
        await run()
        return True
    except BaseException as error:
        cancelled: BaseException | None = None
        rest: BaseException | None = error
        if _is_cancelled():
            if isinstance(error, BaseExceptionGroup):
                cancelled, rest = error.split(trio.Cancelled)
            elif isinstance(error, trio.Cancelled):
                cancelled, rest = error, None
        if rest is not None:
            logger.error("connection %s ended by %r", client, rest, exc_info=rest)
            if hub:
                hub.emit(telemetry.GuardCaught(layer="connection", error=rest))
        if cancelled is not None:
            raise cancelled from None
    return False


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failure of the request that raised it, which can be answered with a 500.

    A `Cancelled` is one if nothing around is cancelled: it belongs to another task, which a shared future or a cache
    may have kept it from. A nursery would take it for its own and end without a word.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return cancelled is not None and (rest is None or isinstance(rest, Exception)) and not _is_cancelled()
    return isinstance(error, trio.Cancelled) and not _is_cancelled()


def _is_cancelled() -> bool:
    return trio.current_effective_deadline() == -inf


def report_failure(error: BaseException, hub: telemetry.Hub, client: str) -> None:
    """Log and emit that serving one request failed; the client gets a 500."""
    logger.error("a request of connection %s failed", client, exc_info=error)
    if hub:
        hub.emit(telemetry.GuardCaught(layer="request", error=error))
