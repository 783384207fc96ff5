"""The guard of a connection: whatever serving it raises ends that connection, and nothing else."""

from __future__ import annotations

import logging

import trio
from attrs import define

from mcptrio import telemetry
from mcptrio._actors.cancellation import is_cancelled, split_cancelled

logger = logging.getLogger("mcptrio.http")


@define(eq=False, repr=False)
class ConnectionGuard:
    """The guard around one connection, a context manager: logs what is raised, lets only real cancellation through."""

    hub: telemetry.Hub
    client: str
    caught: bool = False
    """Whether anything was raised."""

    def __enter__(self) -> ConnectionGuard:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if error is None:
            return False
        self.caught = True
        cancelled, rest = split_cancelled(error)
        if rest is not None:
            logger.error("connection %s ended by %r", self.client, rest, exc_info=rest)
            if self.hub:
                self.hub.emit(telemetry.GuardCaught(layer="connection", error=rest))
        if cancelled is not None and cancelled is not error:
            raise cancelled from None
        return cancelled is None


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failure of the request that raised it, which can be answered with a 500.

    A `Cancelled` is one if nothing around is cancelled: it belongs to another task, which a shared future or a cache
    may have kept it from. A nursery would take it for its own and end without a word.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return cancelled is not None and (rest is None or isinstance(rest, Exception)) and not is_cancelled()
    return isinstance(error, trio.Cancelled) and not is_cancelled()


def report_failure(error: BaseException, hub: telemetry.Hub, client: str) -> None:
    """Log and emit that serving one request failed; the client gets a 500."""
    logger.error("a request of connection %s failed", client, exc_info=error)
    if hub:
        hub.emit(telemetry.GuardCaught(layer="request", error=error))
