"""The events that mcptrio emits, one frozen class each, and the hub that hands them to listeners.

A listener is any callable that takes one event: logging, the `/metrics` page and tracing are three of them. With no
listener an event costs one truth test, since it is not even built: write `if hub: hub.emit(CallEnded(...))`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

logger = logging.getLogger("mcptrio")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. Subclasses say what."""


class SessionOpened(Event, frozen=True):
    session: str
    transport: str


class SessionClosed(Event, frozen=True):
    session: str
    cause: str
    seconds: float


class CallStarted(Event, frozen=True):
    session: str
    call: int
    request_id: int | str | None
    method: str


class CallEnded(Event, frozen=True):
    """`outcome`: ok, error, timeout, cancelled, disconnected or shutdown."""

    session: str
    call: int
    request_id: int | str | None
    method: str
    outcome: str
    seconds: float
    code: int | None = None


class AskSent(Event, frozen=True):
    """This side asked its peer for something (sampling, elicitation, roots ...)."""

    session: str
    method: str


class AskEnded(Event, frozen=True):
    session: str
    method: str
    outcome: str
    seconds: float


class StreamOpened(Event, frozen=True):
    """An SSE answer began; `resumed` where it takes up an earlier one."""

    session: str
    resumed: bool


class StreamClosed(Event, frozen=True):
    session: str
    cause: str


class ReplayRefused(Event, frozen=True):
    """A cursor was presented that is unknown, expired or belongs elsewhere."""

    session: str


class StoreChanged(Event, frozen=True):
    """A store degraded (`problem` says why) or recovered (None)."""

    store: str
    problem: str | None


class LimitHit(Event, frozen=True):
    """A bound was reached and did its work."""

    name: str
    session: str | None = None


class Dropped(Event, frozen=True):
    """A message was left out on purpose: unknown responses, late notifications, flooded progress ..."""

    kind: str
    session: str | None = None


class GuardCaught(Event, frozen=True):
    """Something was raised that nothing inside expected; `layer` is call, session, connection or runtime."""

    layer: str
    error: BaseException
    session: str | None = None


class Zombie(Event, frozen=True):
    """A handler did not end although it was cancelled."""

    session: str
    method: str
    request_id: int | str | None


class LoopStalled(Event, frozen=True):
    """The event loop did not turn for a while: some handler blocked its thread."""

    seconds: float
    culprit: str | None = None


class ConnectionEvent(Event, frozen=True):
    """What the HTTP listener saw on a connection: refused, write_timeout, header_timeout ..."""

    kind: str
    detail: str = ""


Listener = Callable[[Any], None]


class Hub:
    """Hands events to listeners. A listener that raises is logged and never disturbs the others."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners: tuple[Listener, ...] = tuple(listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        self._listeners = tuple(kept for kept in self._listeners if kept is not listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("a telemetry listener failed on %s", type(event).__name__)
