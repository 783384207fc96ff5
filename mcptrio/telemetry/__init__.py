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
    """The end of a session: `cause` is the reason (idle, drain, disconnect ...), `seconds` its duration.

    `role` is that of this side, server or client.
    """

    session: str
    cause: str
    seconds: float
    role: str = "server"


class SessionPassivated(Event, frozen=True):
    """An idle session that was stored and left the memory; its next request continues it."""

    session: str


class SessionTakenOver(Event, frozen=True):
    """A stored session that is continued here. `reason` is passivated, or died if its process was killed."""

    session: str
    reason: str


class RequestForwarded(Event, frozen=True):
    """A request that another worker was to answer: the home of its session, or the one that has its parked call.

    `session` is - for a parked call. `outcome` is answered, unavailable (503), may_have_run (the worker died), gone
    (the session ended meanwhile) or here (this worker became its home meanwhile).
    """

    session: str
    worker: str
    outcome: str


class WorkerJoined(Event, frozen=True):
    """A worker of the cluster that this worker has seen for the first time; also this worker itself."""

    worker: str
    slot: str


class WorkerDied(Event, frozen=True):
    """Another worker that is no longer in the cluster: it has ended, was killed, or its lease has expired."""

    worker: str


class LeaseLost(Event, frozen=True):
    """The end of this worker's lease.

    `reason` is expired (session requests get 503 until the store can be reached again) or declared_dead (other workers
    have its sessions).
    """

    worker: str
    reason: str


class CallStarted(Event, frozen=True):
    """The start of a handler, emitted in its task.

    `call` is a serial number of this process, not an id of the peer. `name` is the tool, prompt or resource that the
    peer named, `entry` the tool or prompt if it is declared, `meta` the `_meta` of the request, `protocol` the
    revision. `principal` is the key of the caller, if a listener has the attribute `principals = True`.
    """

    session: str
    call: int
    request_id: int | str | None
    method: str
    name: str | None = None
    entry: str | None = None
    protocol: str | None = None
    transport: str = ""
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)
    principal: str | None = None


class CallEnded(Event, frozen=True):
    """The end of a call. `outcome` is ok, tool_error, error, timeout, cancelled or overloaded.

    `name` is the tool, prompt or resource that the peer named, `entry` the declared name, URI or template that served
    it (None if there is none). Of its `seconds` it waited `queued` for a place and `asking` for the peer. `cause` says
    who cancelled it (client, disconnected, shutdown, session), `code` and `message` are those of an error.
    """

    session: str
    call: int
    request_id: int | str | None
    method: str
    outcome: str
    seconds: float
    code: int | None = None
    name: str | None = None
    entry: str | None = None
    queued: float = 0.0
    asking: float = 0.0
    cause: str | None = None
    message: str | None = None
    principal: str | None = None


class CallParked(Event, frozen=True):
    """A call whose request was answered with questions, and which waits for the client to repeat it."""

    session: str
    call: int
    request_id: int | str | None
    method: str
    name: str | None = None


class CallResumed(Event, frozen=True):
    """A parked call that continues: `request_id` and `meta` are those of the repeated request."""

    session: str
    call: int
    request_id: int | str | None
    method: str
    name: str | None = None
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)


class AskSent(Event, frozen=True):
    """A request to the peer: sampling, elicitation, roots; for a client everything that it requests.

    `ask` is the serial number of the request in this process, `name` the tool, prompt or resource in it. What a
    listener puts into `meta` is sent in the `_meta` of the request.
    """

    session: str
    method: str
    ask: int = 0
    name: str | None = None
    protocol: str | None = None
    transport: str = ""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)


class AskEnded(Event, frozen=True):
    """The end of an `AskSent`. `outcome` is ok, tool_error, error, timeout or cancelled."""

    session: str
    method: str
    outcome: str
    seconds: float
    ask: int = 0
    name: str | None = None
    code: int | None = None
    message: str | None = None


class RequestServed(Event, frozen=True):
    """A response to an HTTP request, and the seconds until it was sent whole; only with `HttpConfig.access_log`."""

    client: str
    method: str
    path: str
    status: int
    seconds: float
    principal: str | None = None


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

    `kind` is opened, ended, refused, request_refused, handshake_failed, write_timeout, not_read, message_too_large,
    message_timeout, no_memory, too_many_frames, ping_unanswered, accept_failed or version_header; `client` is the
    address of the peer.
    """

    kind: str
    client: str = ""
    detail: str = ""


Listener = Callable[[Any], None]


class Hub:
    """The dispatcher of events to listeners. An exception of a listener is logged and does not affect the others."""

    __slots__ = ("_by_class", "_listeners", "_others", "principals")

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self.principals = False
        """Whether events carry the keys of principals, because a listener has asked for them."""
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
        self.principals = any(getattr(listener, "principals", False) for listener in listeners)
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
