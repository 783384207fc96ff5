"""The events that mcptrio emits, one frozen class each, and the hub that hands them to listeners.

A listener is any callable that takes one event: `log.LogListener` and `metrics.Metrics` are two of them. A listener
with an attribute `hears` gets only the classes in it; if that is a mapping from class to function, the function is
called instead of the listener. Without listeners an event costs one truth test, since it is not even built: write
`if hub: hub.emit(CallEnded(...))`, or `if hub.wants(CallStarted): ...` for an event that few listeners need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

logger = logging.getLogger("mcptrio")

current_call: Final[ContextVar[tuple[str, int | str | None] | None]] = ContextVar("mcptrio_call", default=None)
"""The session and the request id of the current handler; the formatters in `log` add them to every line."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of all events."""


class SessionOpened(Event, frozen=True):
    """A new session; `transport` names its transport."""

    session: str
    transport: str


class SessionClosed(Event, frozen=True):
    """The end of a session: `cause` is the reason, `seconds` its duration."""

    session: str
    cause: str
    seconds: float


class CallStarted(Event, frozen=True):
    """The start of a handler; `call` is a serial number of this process, not an id of the peer."""

    session: str
    call: int
    request_id: int | str | None
    method: str


class CallEnded(Event, frozen=True):
    """The end of a call. `outcome` is ok, error, timeout, cancelled, disconnected or shutdown."""

    session: str
    call: int
    request_id: int | str | None
    method: str
    outcome: str
    seconds: float
    code: int | None = None


class AskSent(Event, frozen=True):
    """A request to the peer (sampling, elicitation, roots ...)."""

    session: str
    method: str


class AskEnded(Event, frozen=True):
    """The end of an `AskSent`: it was answered or abandoned."""

    session: str
    method: str
    outcome: str
    seconds: float


class StreamOpened(Event, frozen=True):
    """The start of an SSE response; `resumed` if it continues an earlier one."""

    session: str
    resumed: bool


class StreamClosed(Event, frozen=True):
    """The end of an SSE response, or the loss of its connection."""

    session: str
    cause: str


class ReplayRefused(Event, frozen=True):
    """A cursor that is unknown, expired or belongs to another stream."""

    session: str


class StoreChanged(Event, frozen=True):
    """A store that degraded (`problem` is the reason) or recovered (None)."""

    store: str
    problem: str | None


class LimitHit(Event, frozen=True):
    """A limit that was reached."""

    name: str
    session: str | None = None


class Dropped(Event, frozen=True):
    """A message that was dropped on purpose: an unknown response, a late notification, excess progress ..."""

    kind: str
    session: str | None = None


class GuardCaught(Event, frozen=True):
    """An unexpected exception that a guard caught; `layer` is call, session, request, connection or runtime."""

    layer: str
    error: BaseException
    session: str | None = None


class Zombie(Event, frozen=True):
    """A handler that does not end although it was cancelled."""

    session: str
    method: str
    request_id: int | str | None


class LoopStalled(Event, frozen=True):
    """An event loop that was blocked for a while: some handler blocks its thread."""

    seconds: float
    culprit: str | None = None


class ConnectionEvent(Event, frozen=True):
    """An event of an HTTP connection.

    `kind` is opened, ended, refused, request_refused, handshake_failed, write_timeout, message_too_large,
    too_many_frames, ping_unanswered, accept_failed or version_header; `client` is the
    address of the peer.
    """

    kind: str
    client: str = ""
    detail: str = ""


Listener = Callable[[Any], None]


class Hub:
    """The dispatcher of events to listeners. An exception of a listener is logged and does not affect the others."""

    __slots__ = ("_by_class", "_listeners", "_others")

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._set(tuple(listeners))

    def __bool__(self) -> bool:
        return bool(self._listeners)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return self._listeners

    def add(self, listener: Listener) -> None:
        self._set((*self._listeners, listener))

    def remove(self, listener: Listener) -> None:
        self._set(tuple(kept for kept in self._listeners if kept != listener))

    def wants(self, kind: type[Event]) -> bool:
        """Return whether any listener takes events of this class."""
        return bool(self._by_class.get(kind, self._others))

    def emit(self, event: Event) -> None:
        for listener in self._by_class.get(type(event), self._others):
            try:
                listener(event)
            except Exception:
                logger.exception("a telemetry listener failed on %s", type(event).__name__)

    def _set(self, listeners: tuple[Listener, ...]) -> None:
        self._listeners = listeners
        pairs = [(listener, getattr(listener, "hears", None)) for listener in listeners]
        self._others = tuple(listener for listener, kinds in pairs if kinds is None)
        named = {kind for _, kinds in pairs if kinds is not None for kind in kinds}
        self._by_class: dict[type[Event], tuple[Listener, ...]] = {
            kind: tuple(
                kinds[kind] if isinstance(kinds, Mapping) else listener
                for listener, kinds in pairs
                if kinds is None or kind in kinds
            )
            for kind in named
        }
