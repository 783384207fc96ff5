"""The events that mcptrio emits, one frozen class each, and the hub that hands them to listeners.

A listener is any callable that takes one event: `log.LogListener` and `metrics.Metrics` are two of them. One that has
an attribute `hears` gets only the classes named there; where that is a mapping, the function that it names for a class
is called instead of the listener. With no listener an event costs one truth test, since it is not
even built: write `if hub: hub.emit(CallEnded(...))`, or `if hub.wants(CallStarted): ...` for what few listeners need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

logger = logging.getLogger("mcptrio")

current_call: Final[ContextVar[tuple[str, int | str | None] | None]] = ContextVar("mcptrio_call", default=None)
"""The session and the request id of the handler that runs here; the formatters in `log` put them into every line."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. Subclasses say what."""


class SessionOpened(Event, frozen=True):
    """A client came; `transport` says how."""

    session: str
    transport: str


class SessionClosed(Event, frozen=True):
    """A session ended: `cause` says why, `seconds` how long it was."""

    session: str
    cause: str
    seconds: float


class CallStarted(Event, frozen=True):
    """A handler begins its work; `call` is our own number, which no peer can choose twice."""

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
    """The question of an `AskSent` was answered, or given up."""

    session: str
    method: str
    outcome: str
    seconds: float


class StreamOpened(Event, frozen=True):
    """An SSE answer began; `resumed` where it takes up an earlier one."""

    session: str
    resumed: bool


class StreamClosed(Event, frozen=True):
    """An SSE answer ended, or its connection was lost."""

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
    """What the HTTP listener saw: opened, ended, refused, request_refused, handshake_failed, write_timeout ..."""

    kind: str
    detail: str = ""


Listener = Callable[[Any], None]


class Hub:
    """Hands events to listeners. A listener that raises is logged and never disturbs the others."""

    __slots__ = ("_by_class", "_listeners", "_others")

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._set(tuple(listeners))

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        self._set((*self._listeners, listener))

    def remove(self, listener: Listener) -> None:
        self._set(tuple(kept for kept in self._listeners if kept != listener))

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody hears events of this class."""
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
