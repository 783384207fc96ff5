"""The context of a handler: its request, its session, and notifications to the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

import trio
from msgspec import Struct

from mcptrio import telemetry
from mcptrio._eras.stateless import LOG_LEVEL
from mcptrio._wire.jsonrpc import encode_value
from mcptrio._wire.objects.converter import unstructure
from mcptrio.errors import DeclarationError
from mcptrio.server.asks import ContextAsks, Elicited
from mcptrio.server.session_handle import RequestHandle, SessionHandle
from mcptrio.types import LOGGING_LEVELS

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # `default=` is in `typing` from 3.13

    from mcptrio.auth.server.principal import Principal
    from mcptrio.types import ClientCapabilities, Implementation, LoggingLevel

    LifespanT = TypeVar("LifespanT", default=Any)
    StateT = TypeVar("StateT", default=Any)
else:
    from typing import TypeVar

    LifespanT, StateT = TypeVar("LifespanT"), TypeVar("StateT")

_SEVERITY = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


class HttpInfo(Struct, frozen=True):
    """The HTTP request that carried a call."""

    method: str
    path: str
    headers: Mapping[str, str]
    client: str | None
    """The remote address."""


class TraceContext(Struct, frozen=True):
    """The trace that a request belongs to (W3C Trace Context and Baggage), as the client gave it in `_meta`."""

    traceparent: str
    tracestate: str | None = None
    baggage: str | None = None


def _number(value: Any) -> float:
    """Return a number that JSON has: a Decimal or a Fraction becomes a float."""
    if type(value) in (int, float):
        return value  # type: ignore[no-any-return]  # it is
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"progress is a number, not {type(value).__name__}")
    return float(value)


class Context(ContextAsks, Generic[LifespanT, StateT]):
    """A handler's view of its request. Annotate a parameter with it to get it; it is never part of a schema.

    `Context[Database, Cart]` tells type checkers that `ctx.lifespan` is a `Database` and `ctx.state` a `Cart`; both
    may be left out.
    """

    _data: dict[str, Any] | None = None
    _last_progress: float | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters):
            return cls  # the parameters mean nothing at runtime

        def __getattr__(self, name):
            from mcptrio._hints import missing_attribute

            return missing_attribute("context", self, name)

    def __repr__(self) -> str:
        return f"<context of {self._call.start.method} {self.request_id!r}>"

    # -- the request

    @property
    def session(self) -> SessionHandle:
        if self._call.start.capabilities is not None:
            return RequestHandle(self._session, self._call)
        return SessionHandle(self._session, self._call)

    @property
    def request_id(self) -> int | str | None:
        return self._call.start.request_id

    @property
    def method(self) -> str:
        return self._call.start.method

    @property
    def uri(self) -> str | None:
        """The URI of the resource that is read or subscribed to; None in other requests."""
        uri = self._call.start.params.get("uri") if self.method.startswith("resources/") else None
        return uri if isinstance(uri, str) else None

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        meta = self._call.start.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def protocol_version(self) -> str:
        return self._call.start.era.date

    @property
    def client_info(self) -> Implementation | None:
        return self.session.client_info

    @property
    def trace(self) -> TraceContext | None:
        """The trace that this request belongs to, for telemetry; None if the client sent none."""
        meta = self.meta
        parent, state, baggage = (meta.get(name) for name in ("traceparent", "tracestate", "baggage"))
        if not isinstance(parent, str):
            return None
        return TraceContext(
            parent, state if isinstance(state, str) else None, baggage if isinstance(baggage, str) else None
        )

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return self.session.client_capabilities

    @property
    def _declared(self) -> Mapping[str, Any]:
        """The capabilities that the client declared, in this request or once for the session."""
        own = self._call.start.capabilities
        return self._session.peer.capabilities if own is None else own

    @property
    def http(self) -> HttpInfo | None:
        """The HTTP request that carried this call, or None over stdio."""
        head = self._call.start.head
        if head is None:
            return None
        address = head.client[0] if head.client else None
        return HttpInfo(method=head.method, path=head.path, headers=head.header_map(), client=address)

    @property
    def principal(self) -> Principal | None:
        """The caller; None without authentication.

        In a session it is always the same one, though its scopes may differ from request to request.
        """
        head = self._call.start.head
        return self._session.principal if head is None or head.principal is None else head.principal

    @property
    def state(self) -> StateT:
        """The value that the function declared with `@server.session` yielded for this session or request."""
        state: StateT = self._session.state if self._call.start.era.stateful else self._call.state
        return state

    @property
    def lifespan(self) -> LifespanT:
        """The value that the server's lifespan function yielded."""
        lifespan: LifespanT = self._session.runtime.lifespan
        return lifespan

    @property
    def data(self) -> dict[str, Any]:
        """A dictionary of this request, for example for values that middleware passes on."""
        if self._data is None:
            self._data = {}
        return self._data

    # -- notifications

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it. This also restarts the soft timeout of the call.

        Raises:
            TypeError: `progress` or `total` is not a number.
        """
        progress, total = _number(progress), None if total is None else _number(total)
        call = self._call
        call.extend()
        # basic/utilities/progress: the value MUST increase with each notification
        stale = self._last_progress is not None and progress <= self._last_progress
        if stale or call.start.progress_token is None:
            if stale:
                self._dropped("stale_progress")
            await trio.lowlevel.checkpoint()
            return
        self._last_progress = progress
        params: dict[str, Any] = {"progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and call.start.era.features.progress_message:
            params["message"] = message
        if not call.may_notify():
            encode_value(params)  # the handler gets the error, not the code that sends it later
            call.held_back = params
            self._dropped("progress_rate")
            await trio.lowlevel.checkpoint()
            return
        call.held_back = None
        await self._session.asks.notify("notifications/progress", call.with_token(params), call=call)

    report_progress = progress

    async def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of that level."""
        if level not in _SEVERITY:
            raise DeclarationError(f"{level!r} is not a log level; use one of {', '.join(LOGGING_LEVELS)}")
        # 2026-07-28 server/utilities/logging: nothing MUST be sent for a request that did not ask for it
        stateful = self._call.start.era.stateful
        threshold: Any = self._session.log_level or "info" if stateful else self.meta.get(LOG_LEVEL)
        if threshold not in _SEVERITY or _SEVERITY[level] < _SEVERITY[threshold]:
            await trio.lowlevel.checkpoint()
            return
        if not self._call.may_notify():
            self._dropped("log_rate")
            await trio.lowlevel.checkpoint()
            return
        params: dict[str, Any] = {"level": level, "data": unstructure(data)}
        if logger is not None:
            params["logger"] = logger
        await self._session.asks.notify("notifications/message", params, call=self._call)

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("error", data, logger=logger)

    def _dropped(self, kind: str) -> None:
        hub = self._session.service.telemetry
        if hub:
            hub.emit(telemetry.Dropped(kind=kind, session=self._session.id))

    def close_stream(self) -> None:
        """End the HTTP stream of this call now; the client polls for the rest. No effect on other transports."""
        if (link := self._call.start.link) is not None:
            link.close_connection()


__all__ = ["Context", "Elicited", "HttpInfo", "RequestHandle", "SessionHandle", "TraceContext"]
