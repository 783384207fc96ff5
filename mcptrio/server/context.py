"""What a handler is given: the request it serves, its session, and the ways to talk back to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio
from msgspec import Struct

from mcptrio import telemetry, types
from mcptrio._actors.call import Call
from mcptrio._actors.session import Session
from mcptrio._eras.stateless import CLIENT_INFO, LOG_LEVEL
from mcptrio._wire.converter import structure, unstructure
from mcptrio.errors import DeclarationError, LinkClosed
from mcptrio.server.asking import Asking, Elicited
from mcptrio.types import LOGGING_LEVELS

if TYPE_CHECKING:
    from mcptrio.types import (
        ClientCapabilities,
        Implementation,
        LoggingLevel,
        ServerCapabilities,
    )

T = TypeVar("T")

_SEVERITY = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


class HttpInfo(Struct, frozen=True):
    """The HTTP request that carried a call."""

    method: str
    path: str
    headers: Mapping[str, str]
    client: str | None
    """The remote address."""


class SessionHandle:
    """What handlers may know of, and do with, the session they serve."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<session {self.id[:8]}… over {self._session.transport}>"

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def transport(self) -> str:
        return self._session.transport

    @property
    def principal(self) -> Any:
        return self._session.principal

    @property
    def protocol_version(self) -> str | None:
        era = self._session.peer.era
        return None if era is None else era.date

    @property
    def client_info(self) -> Implementation | None:
        return cast("Implementation | None", self._session.data.get("client_info"))

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return structure(self._session.peer.capabilities, types.ClientCapabilities)

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server offers in this session; a session function may set it to something narrower."""
        return structure(self._session.data["capabilities"], types.ServerCapabilities)

    @capabilities.setter
    def capabilities(self, offered: ServerCapabilities) -> None:
        self._session.data["capabilities"] = unstructure(offered)

    @property
    def ended(self) -> str | None:
        """Why the session ended, once it has."""
        return None if self._session.ended is None else self._session.ended.value

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn` in the background for as long as the session lives.

        Raises:
            LinkClosed: the session is over.
        """
        if self._session.ended is not None:
            raise LinkClosed(f"nothing can be started for a session that is over: {self._session.ended.value}")
        self._session.start_background(fn, *args)

    async def resource_updated(self, uri: str) -> None:
        """Tell this client, and no other, that a resource has changed."""
        await self._session.notify("notifications/resources/updated", {"uri": uri})


class RequestHandle(SessionHandle):
    """The same for a request that has no session: it is its own, and ends with it."""

    __slots__ = ("_call",)

    def __init__(self, session: Session, call: Call) -> None:
        super().__init__(session)
        self._call = call

    @property
    def protocol_version(self) -> str | None:
        return self._call.start.era.date

    @property
    def client_info(self) -> Implementation | None:
        return declared_info(self._call.start.params.get("_meta"))

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return structure(self._call.start.capabilities or {}, types.ClientCapabilities, at="capabilities")

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server offers to this request; a session function may set it to something narrower."""
        return structure(self._call.offers, types.ServerCapabilities)

    @capabilities.setter
    def capabilities(self, offered: ServerCapabilities) -> None:
        self._call.offers = unstructure(offered)

    @property
    def ended(self) -> str | None:
        """Why the request was ended, if it was."""
        return None if self._call.stopped is None else self._call.stopped.value


def declared_info(meta: Any) -> Implementation | None:
    """Who a request without a session says that it comes from."""
    info = meta.get(CLIENT_INFO) if isinstance(meta, dict) else None
    return structure(info, types.Implementation, at=f"params._meta.{CLIENT_INFO}") if isinstance(info, dict) else None


class TraceContext(Struct, frozen=True):
    """The trace that a request belongs to (W3C Trace Context and Baggage), as the client gave it in `_meta`."""

    traceparent: str
    tracestate: str | None = None
    baggage: str | None = None


class Context(Asking):
    """A handler's view of its request. Annotate a parameter with it and it is given; it is never part of a schema."""

    __slots__ = ("_data", "_last_progress")

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call
        self._data: dict[str, Any] | None = None
        self._last_progress: float | None = None

    def __repr__(self) -> str:
        return f"<context of {self._call.start.method} {self.request_id!r}>"

    # -- who and what

    @property
    def session(self) -> SessionHandle:
        if self._call.start.capabilities is not None:
            return RequestHandle(self._session, self._call)
        return SessionHandle(self._session)

    @property
    def request_id(self) -> int | str | None:
        return self._call.start.request_id

    @property
    def method(self) -> str:
        return self._call.start.method

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
        if self._call.start.capabilities is None:
            return self.session.client_info
        return declared_info(self.meta)

    @property
    def trace(self) -> TraceContext | None:
        """The trace that this request belongs to, for telemetry; None where the client gave none."""
        meta = self.meta
        parent, state, baggage = (meta.get(name) for name in ("traceparent", "tracestate", "baggage"))
        if not isinstance(parent, str):
            return None
        return TraceContext(
            parent, state if isinstance(state, str) else None, baggage if isinstance(baggage, str) else None
        )

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return structure(self._declared, types.ClientCapabilities, at="capabilities")

    @property
    def _declared(self) -> Mapping[str, Any]:
        """What the client declared: in this request, or once for the session."""
        own = self._call.start.capabilities
        return self._session.peer.capabilities if own is None else own

    @property
    def http(self) -> HttpInfo | None:
        """The HTTP request that carried this call, or None over stdio."""
        head = getattr(self._call.start.link, "head", None)
        if head is None:
            return None
        address = head.client[0] if head.client else None
        return HttpInfo(method=head.method, path=head.path, headers=head.header_map(), client=address)

    @property
    def principal(self) -> Any:
        """Who makes this request; None where nobody is authenticated.

        In a session it is always the same one, though its scopes may differ from request to request.
        """
        head = getattr(self._call.start.link, "head", None)
        return self._session.principal if head is None or head.principal is None else head.principal

    @property
    def state(self) -> Any:
        """What the function declared with `@server.session` yielded for this session, or for this request."""
        return self._session.state if self._call.start.era.stateful else self._call.state

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan function yielded."""
        return self._session.runtime.lifespan

    @property
    def data(self) -> dict[str, Any]:
        """A dictionary of one's own for this request, e.g. for middleware to leave things in."""
        if self._data is None:
            self._data = {}
        return self._data

    # -- telling

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it. It also restarts the call's soft time limit."""
        self._call.extend()
        token = self._call.start.progress_token
        if token is None:
            await trio.lowlevel.checkpoint()
            return
        # basic/utilities/progress: the value MUST increase with each notification
        if self._last_progress is not None and progress <= self._last_progress:
            self._dropped("stale_progress")
            return
        self._last_progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self._call.start.era.features.progress_message:
            params["message"] = message
        if not self._call.may_notify():
            self._call.held_back = ("notifications/progress", params)
            self._dropped("progress_rate")
            await trio.lowlevel.checkpoint()
            return
        self._call.held_back = None
        await self._session.notify("notifications/progress", params, call=self._call)

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
        await self._session.notify("notifications/message", params, call=self._call)

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
        """End the HTTP stream of this call now; the client comes back for the rest (it polls). Nothing elsewhere."""
        close = getattr(self._call.start.link, "close_connection", None)
        if close is not None:
            close()


__all__ = ["Context", "Elicited", "HttpInfo", "RequestHandle", "SessionHandle", "TraceContext"]
