"""Stateless HTTP: one POST, one exchange. The headers repeat parts of the body and must agree with it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from attrs import define, field
from msgspec import Struct

from mcptrio import telemetry
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.shares import Owners, Shares
from mcptrio._eras.choose import Served
from mcptrio._eras.stateless import NAMED_BY, declared_date
from mcptrio._peer.era import Era
from mcptrio._wire.headers import decode_header_value
from mcptrio._wire.jsonrpc import Batch, Frame, Notification, Request
from mcptrio.errors import HEADER_MISMATCH, INVALID_REQUEST, Overloaded, RemoteProtocolError

from .event_stream import leased
from .exchange_stream import ExchangeStream, OutboxStream, StoreStream
from .message import EVENTS, HttpRequest, Plain, Stream, overloaded, refuse, refuse_frame
from .parts import EndpointParts
from .post import Pending, ReplyPhase

EXCHANGE_ID: Final = "-"
"""The session name of stateless requests in telemetry."""
_PARAM: Final = b"mcp-param-"
_INTEGER: Final = re.compile(r"-?[0-9]{1,16}(\.0+)?")


class ExchangeLink(Pending, kw_only=True):
    """The link of one POST: plain JSON if the response comes first and soon, otherwise a stream."""

    frame: Request
    exchange: Exchange | None = None
    """The exchange until it is over; cleared then, because the reference cycle would delay garbage collection."""
    listens: bool
    """Whether it is a listen request, which is a stream from its first message."""
    on_end: Callable[[], None] | None = None
    _stream: ExchangeStream | None = None
    """Cleared when its connection is gone, because it refers to this link."""
    _done: bool = False

    # -- for the exchange: nothing here waits

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        config = self.parts.config
        if self.phase is ReplyPhase.PENDING:
            if final and (status != 200 or not config.sse_only):
                self._answer(data, status)
            elif config.json_only and not final and not self.listens:
                if hub := self.parts.hub:
                    hub.emit(telemetry.Dropped(kind="json_only", session=EXCHANGE_ID))
            elif not self._open() and final:
                self._answer(data, status)
        if self._stream is not None:
            self._stream.put(data, final)
        if final:
            self.end()

    def end(self) -> None:
        if self._done:
            return
        self._done = True
        self.exchange = None
        if self.on_end is not None:
            self.on_end()
        if self.phase is ReplyPhase.PENDING:
            self._settle(ReplyPhase.OVER)
        elif self._stream is not None:
            self._stream.close()

    @property
    def full(self) -> bool:
        return self._stream is not None and self._stream.full

    async def room(self) -> None:
        if self._stream is not None:
            await self._stream.room()

    def _open(self) -> bool:
        """Turn into a stream; return False if the store has no room for it, and the answer will be plain JSON."""
        parts, head = self.parts, self.head
        try:
            if head.remote is None:
                self._stream = OutboxStream(parts, head, self.detach)
            else:
                self._stream = StoreStream(parts, head, head.remote, self.frame.id, self.detach)
        except Overloaded:
            return False
        self._become_stream()
        return True

    # -- for the engine

    async def reply(self) -> Plain | Stream:
        """Wait for the response."""
        plain = await self._wait(self._open, partial(self.detach, "cancelled"))
        if plain is not None:
            return plain
        if self._stream is not None:
            stream = Stream(200, EVENTS, self._stream.events())
            return leased(self.head, stream) if self.listens else stream
        return refuse(500, "the request ended without an answer", request_id=self.frame.id)

    def detach(self, cause: str) -> None:
        """Cancel the request, because its stream was closed (2026-07-28 basic/transports/streamable-http: MUST)."""
        if self.exchange is not None:
            self.exchange.lose(self)
            self.end()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.drop()


class Declared(Struct):
    """The served dates, with the already parsed declaration of one request."""

    served: Served
    frame: Request
    found: tuple[Era, dict[str, Any]]

    def negotiate(self, requested: object) -> Era:
        return self.served.negotiate(requested)

    def declared(self, frame: Request) -> tuple[Era, dict[str, Any]] | None:
        return self.found if frame is self.frame else self.served.declared(frame)


@define(eq=False, repr=False)
class Exchanges:
    """The stateless requests of an endpoint."""

    parts: EndpointParts
    listen_places: Shares = field(init=False)
    """Slots of requests that stay open for change notifications; `max_calls` does not count them."""

    def __attrs_post_init__(self) -> None:
        most = self.parts.config.max_listeners
        self.listen_places = Shares(most, owners=Owners(several=True))

    async def post(self, head: HttpRequest, frame: Frame | Batch) -> Plain | ExchangeLink:
        """Serve a message of a client."""
        if type(frame) is not Request:
            if type(frame) is Notification:
                return Plain(202)
            # basic/transports/streamable-http: one request or notification; clients MUST NOT send responses
            return refuse(400, "the body must be a single request or notification", code=INVALID_REQUEST)
        try:
            eras = self._check(head, frame)
        except RemoteProtocolError as error:
            return refuse_frame(error)
        parts = self.parts
        refusal = await parts.scopes.check(head, frame)
        if refusal is not None:
            return refusal
        listens = frame.method == "subscriptions/listen"
        if listens:
            refusal = await self._enter_listener(head, frame)
        else:
            refusal = await parts.admission.enter(head, frame)
        if refusal is not None:
            parts.call_refused(head, frame, refusal)
            return refusal
        on_end = partial(parts.admission.leave, head)
        if listens:
            on_end = partial(self.listen_places.give_back, head.owner)
        config, runtime = parts.config, parts.runtime
        stream_after = math.inf if config.json_only else config.stream_after
        link = ExchangeLink(
            head=head,
            frame=frame,
            parts=parts,
            stream_after=stream_after,
            queued=head.queued,
            listens=listens,
            on_end=on_end,
        )
        exchange = Exchange(
            id=EXCHANGE_ID,
            service=runtime.app,
            link=link,
            runtime=runtime,
            principal=head.principal,
            owner=head.owner,
            eras=eras,
        )
        link.exchange = exchange
        exchange.deliver_nowait(frame, head.context)
        return link

    async def _enter_listener(self, head: HttpRequest, frame: Request) -> Plain | None:
        parts = self.parts
        if parts.refuses:
            return overloaded("the server is shutting down", 5, request_id=frame.id, close=True)
        if not await self.listen_places.wait(head.owner, timeout=parts.busy_timeout):
            parts.limit("max_listeners")
            return overloaded("too many listen streams are open", 5, request_id=frame.id, limit="max_listeners")
        return None

    def _check(self, head: HttpRequest, frame: Request) -> Declared:
        """Compare the headers with the body: a proxy may have routed or checked the request by its headers."""
        served = self.parts.runtime.app.eras
        method, params = frame.method, frame.params
        date = declared_date(params)
        if date is not None:  # first: an unsupported version must agree in both places too
            self._compare(head, frame, b"mcp-protocol-version", date)
        declared = served.declared(frame, required=True)
        if declared is None:
            raise RuntimeError("a required date was not declared, and not refused")
        self._compare(head, frame, b"mcp-method", method)
        parameter = NAMED_BY.get(method)
        name = None if parameter is None else params.get(parameter)
        if type(name) is str:
            self._compare(head, frame, b"mcp-name", name, encoded=True)
            if method == "tools/call":
                marks = self.parts.runtime.app.parameter_headers(name)
                if marks:
                    self._compare_arguments(head, frame, marks)
        return Declared(served, frame, declared)

    def _compare_arguments(self, head: HttpRequest, frame: Request, marks: Mapping[str, tuple[str, ...]]) -> None:
        arguments = frame.params.get("arguments")
        for mark, path in marks.items():
            value: Any = arguments if isinstance(arguments, dict) else {}
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            header = _PARAM + mark.lower().encode()
            if value is None:
                if header in head.fields:
                    raise _mismatch(frame, header, "the body has no such argument")
            else:
                self._compare(head, frame, header, value, encoded=True)

    def _compare(self, head: HttpRequest, frame: Request, name: bytes, wanted: Any, *, encoded: bool = False) -> None:
        if head.doubled and head.count(name) > 1:
            raise _mismatch(frame, name, "it was sent twice")
        found = head.text(name)
        if found is None:
            raise _mismatch(frame, name, "it is missing")
        found = found.strip(" \t")
        if encoded:
            try:
                found = decode_header_value(found)
            except ValueError:
                raise _mismatch(frame, name, "it cannot be decoded") from None
        if found != wanted and not _means(found, wanted):
            raise _mismatch(frame, name, "it differs from the body")


def _means(text: str, value: Any) -> bool:
    """Return whether a header's text stands for an argument that is not a string."""
    match value:
        case bool():
            return text == ("true" if value else "false")
        case int() | float():
            # "Server Validation": as numbers, 42.0 is 42
            return _INTEGER.fullmatch(text) is not None and int(text.partition(".")[0]) == value
    return False


def _mismatch(frame: Request, name: bytes, why: str) -> RemoteProtocolError:
    shown = name.decode("ascii").title()
    return RemoteProtocolError(f"header {shown}: {why}", code=HEADER_MISMATCH, request_id=frame.id)
