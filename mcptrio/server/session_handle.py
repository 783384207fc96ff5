"""The session as handlers see it: the client, background tasks, notifications to this client, and its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from mcptrio import types
from mcptrio._actors.call import Call
from mcptrio._actors.record import MAX_SAVED
from mcptrio._actors.service import Actor
from mcptrio._eras.stateless import CLIENT_INFO
from mcptrio._peer.messages import Cause
from mcptrio._uri.syntax import normalize
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, encode_value
from mcptrio._wire.objects.converter import structure, unstructure
from mcptrio._wire.sized import memory_of
from mcptrio.errors import INVALID_PARAMS, ConnectionLost, LocalProtocolError, MCPError

if TYPE_CHECKING:
    from mcptrio.auth.server.principal import Principal
    from mcptrio.types import ClientCapabilities, Implementation, ServerCapabilities

MAX_KEPT: Final = 32 * 1024
"""Bytes of the parameters of `initialize`, and of a subscription besides its URIs; usual clients send one or two KiB,
and a thousand ids of tasks take 25."""
_MAX_DECODED: Final = 3 * MAX_KEPT
"""Bytes that they may take in memory: many small objects take twenty times as much there as on the wire."""


class SessionHandle:
    """The session of a handler, as user code sees it."""

    __slots__ = ("_call", "_session")

    def __init__(self, session: Actor, call: Call | None = None) -> None:
        self._session = session
        self._call = call

    def __repr__(self) -> str:
        return f"<session {self.id[:8]}… over {self._session.transport}>"

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def transport(self) -> str:
        return self._session.transport

    @property
    def principal(self) -> Principal | None:
        """The authenticated caller that opened the session; None without authentication."""
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
        return structure(self._session.peer.capabilities, types.ClientCapabilities, at="capabilities")

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server offers in this session; a session function may narrow them."""
        return structure(self._session.data["capabilities"], types.ServerCapabilities)

    @capabilities.setter
    def capabilities(self, offered: ServerCapabilities) -> None:
        self._session.data["capabilities"] = unstructure(offered)

    @property
    def ended(self) -> str | None:
        """Why the session ended, once it has."""
        return None if self._session.ended is None else self._session.reason or self._session.ended.value

    @property
    def epoch(self) -> int:
        """How often the session was continued from its record: a fencing token for what handlers change elsewhere."""
        return self._session.epoch

    @property
    def taken_over(self) -> bool:
        """Whether the session was continued from its record, so that its session function runs again."""
        return bool(self._session.data.get("taken_over"))

    @property
    def saved(self) -> Any:
        """The value that was last given to `save`, also before the session was continued elsewhere; None at first."""
        saved = self._session.data.get("saved")
        return None if saved is None else msgspec.json.decode(saved)

    def save(self, value: Any) -> None:
        """Keep a value in the record of the session, for the session function that continues it.

        Raises:
            TypeError: the value has no JSON form.
            ValueError: its JSON form is larger than 64 KiB.
        """
        data = encode_value(value)
        if len(data) > MAX_SAVED:
            raise ValueError(f"the value takes {len(data)} bytes as JSON, and a session may save {MAX_SAVED}")
        self._session.data["saved"] = data
        self._session.changed()

    def end(self, reason: str) -> None:
        """End the session; from a handler, as soon as its request is answered.

        The session function sees the reason in `session.ended`. A client has to initialize a new session.
        """
        if self._call is not None and not self._call.over:
            self._call.ends_session = reason
        else:
            self._session.reason = reason
            self._session.close_nowait(Cause.SESSION_END)

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn` in the background for as long as the session lives.

        Raises:
            ConnectionLost: the session is over.
        """
        if self._session.ended is not None:
            raise ConnectionLost(f"nothing can be started for a session that is over: {self._session.ended.value}")
        self._session.background.start(fn, *args)

    def notify_tools_changed(self) -> None:
        """Notify only this client that its list of tools has changed. Callable from any thread, like the next three.

        The notification is sent only if it was declared (`listChanged`) or subscribed to. In 2026-07-28 there are no
        sessions, so nothing is sent; use `server.notify_tools_changed()`.
        """
        self._session.runtime.call_soon(send_list_changed, self._session, "tools")

    def notify_prompts_changed(self) -> None:
        """Notify only this client that its list of prompts has changed."""
        self._session.runtime.call_soon(send_list_changed, self._session, "prompts")

    def notify_resources_changed(self) -> None:
        """Notify only this client that its list of resources has changed."""
        self._session.runtime.call_soon(send_list_changed, self._session, "resources")

    def notify_resource_updated(self, uri: str, meta: Mapping[str, Any] | None = None) -> None:
        """Notify only this client that a resource has changed, if it has subscribed to it.

        Raises:
            TypeError, ValueError: `meta` has no JSON form.
        """
        params = updated_params(uri, meta)
        encode_value(params)
        self._session.runtime.call_soon(self._send_updated, params)

    def _send_updated(self, params: dict[str, Any]) -> None:
        subject = resource_topic(params["uri"])
        for uri, followed in self._session.data.get("subscriptions", {}).items():
            if followed.topic == subject:  # the client may have written the URI in another way
                self._session.asks.notify_nowait("notifications/resources/updated", {**params, "uri": uri})


def send_list_changed(session: Actor, kind: str) -> None:
    """Send `list_changed` if it was declared to this client."""
    offered = (session.peer.offers or {}).get(kind) or {}
    if offered.get("listChanged"):
        session.asks.notify_nowait(f"notifications/{kind}/list_changed", {})


def is_large(params: Mapping[str, Any]) -> bool:
    """Whether parameters are too large to be kept as long as a session or a stream lasts."""
    data = encode_value(params)
    return len(data) > MAX_KEPT or memory_of(data, DEFAULT_LIMITS) > _MAX_DECODED


def check_kept(params: Mapping[str, Any]) -> None:
    """Refuse parameters that would take megabytes in memory as long as a session or a stream lasts."""
    if is_large(params):
        text = f"what the server keeps of this request may have {MAX_KEPT} bytes, and {_MAX_DECODED} when it is decoded"
        raise MCPError(INVALID_PARAMS, text)


def resource_topic(uri: str) -> str:
    """Return the topic of a resource on the bus; all spellings of its URI have one."""
    return f"resource {normalize(uri)}"


def updated_params(uri: str, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"uri": uri} if meta is None else {"uri": uri, "_meta": dict(meta)}


class RequestHandle(SessionHandle):
    """The session handle of a stateless request, which is its own session and ends with it."""

    __slots__ = ()
    _call: Call

    @property
    def protocol_version(self) -> str | None:
        return self._call.start.era.date

    @property
    def client_info(self) -> Implementation | None:
        meta = self._call.start.params.get("_meta")
        info = meta.get(CLIENT_INFO) if isinstance(meta, dict) else None
        if not isinstance(info, dict):
            return None
        return structure(info, types.Implementation, at=f"params._meta.{CLIENT_INFO}")

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return structure(self._call.start.capabilities or {}, types.ClientCapabilities, at="capabilities")

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server offers to this request; a session function may narrow them."""
        return structure(self._call.offers, types.ServerCapabilities)

    @capabilities.setter
    def capabilities(self, offered: ServerCapabilities) -> None:
        self._call.offers = unstructure(offered)

    @property
    def ended(self) -> str | None:
        """Why the request was ended, if it was."""
        return None if self._call.stopped is None else self._call.stopped.value

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn` in the background until the request is over.

        Raises:
            ConnectionLost: the request is over.
        """
        if self._call.over:
            raise ConnectionLost("nothing can be started for a request that is over")
        self._session.background.start(fn, *args, call=self._call)

    def save(self, value: Any) -> None:
        """Raise `LocalProtocolError`: in 2026-07-28 there are no sessions to keep a value for."""
        raise LocalProtocolError("this request belongs to no session that could keep a value; use a store of your own")

    def end(self, reason: str) -> None:
        """Raise `LocalProtocolError`: in 2026-07-28 there are no sessions to end."""
        raise LocalProtocolError("this request belongs to no session that could be ended; return a result instead")
