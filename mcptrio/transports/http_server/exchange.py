"""The stateless life over HTTP: one POST, one exchange. The headers repeat the body and must agree with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define
from msgspec import Struct

from mcptrio import telemetry
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.link import Outbox
from mcptrio._eras.choose import Served
from mcptrio._eras.stateless import declared_date
from mcptrio._peer.era import Era
from mcptrio._wire.headers import decode_header_value
from mcptrio._wire.jsonrpc import Batch, Frame, Notification, Request
from mcptrio._wire.sse import COMMENT, encode_event
from mcptrio.errors import HEADER_MISMATCH, INVALID_REQUEST, LinkClosed, RemoteProtocolError

from .deadlines import Deadlines, Timed
from .lease import leased
from .message import ELSEWHERE, EVENTS, JSON, Head, Loan, Plain, Stream, overloaded, refuse, refuse_frame
from .pending import Pending, Phase

if TYPE_CHECKING:
    from .answer import Endpoint

NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which parameter `Mcp-Name` repeats."""
EXCHANGE_ID: Final = "-"
"""What has no session is called so."""
_PARAM: Final = b"mcp-param-"
_CHUNK: Final = 64 * 1024  # what a stream hands out at once; the rest waits where it is counted
_SMALL: Final = 4096  # what a connection may remember of a body
_INTEGER: Final = re.compile(r"-?[0-9]{1,16}(\.0+)?")


class Heartbeat(Timed):
    """Lets a stream say something when it has been silent for long: an empty item stands for a comment."""

    def __init__(self, deadlines: Deadlines, outbox: Outbox) -> None:
        super().__init__(deadlines)
        self._outbox = outbox

    def late(self) -> None:
        if self._outbox.empty:
            self._outbox.put(b"")


class ExchangeLink(Pending, kw_only=True):
    """The link of one POST: plain JSON if the answer comes first and soon, otherwise a stream. Also its `Events`."""

    endpoint: Endpoint
    exchange: Exchange | None = None
    """Until it is over: the two would keep each other alive until the garbage is collected."""
    listens: bool
    """It stays open, and is a stream from the first message on."""
    _outbox: Outbox | None = None
    _heartbeat: Heartbeat | None = None
    _done: bool = False

    # -- the exchange's side: nothing here waits

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        config = self.endpoint.config
        if self.phase is Phase.PENDING:
            if final and (status != 200 or not config.sse_only):
                self.answer, self.status = data, status
                self._settle(Phase.ANSWERED)
            elif config.json_only and not final and not self.listens:
                if hub := self.endpoint.hub:
                    hub.emit(telemetry.Dropped(kind="json_only", session=EXCHANGE_ID))
            else:
                self._open()
        if self._outbox is not None:
            self._outbox.put(data)
        if final:
            self.end()

    def end(self) -> None:
        if self._done:
            return
        self._done = True
        self.exchange = None
        if self.listens:
            self.endpoint.listeners -= 1
        else:
            self.endpoint.admission.leave(self.head)
        if self.phase is Phase.PENDING:
            self._settle(Phase.OVER)
        elif self._outbox is not None:
            self._outbox.close()

    async def room(self) -> None:
        if self._outbox is not None:
            if self._outbox.full:
                self.endpoint.limit("outbox")
            await self._outbox.room()

    def _open(self) -> None:
        config = self.endpoint.config
        self._outbox = Outbox(max_items=config.outbox_events, max_bytes=config.outbox_bytes)
        self._heartbeat = Heartbeat(self.endpoint.deadlines, self._outbox)
        self._settle(Phase.STREAMING)

    # -- the shell's side

    async def decided(self) -> None:
        """Wait until it is known how to answer."""
        if not self.undecided:
            return
        if not self.endpoint.config.json_only:
            self.endpoint.alarm.set(self)
        try:
            await self._wait()
        except BaseException:
            self.detach("cancelled")
            raise

    def overdue(self) -> None:
        """It took too long for a plain answer."""
        self._open()

    @property
    def over(self) -> bool:
        return self._done and self._outbox is not None and self._outbox.empty

    async def next(self) -> bytes | None:
        assert self._outbox is not None
        assert self._heartbeat is not None
        self._heartbeat.wait_until(trio.current_time() + self.endpoint.config.heartbeat)
        try:
            items = await self._outbox.take_all(_CHUNK)
        except LinkClosed:
            return None
        return b"".join([encode_event(item) if item else COMMENT for item in items])

    def detach(self, cause: str) -> None:
        """2026-07-28 basic/transports/streamable-http: a closed stream MUST be taken for a cancellation."""
        if self._heartbeat is not None:
            self._heartbeat.forget_deadline()
        if self.exchange is not None:
            self.exchange.lose(self)
            self.end()


class Declared(Struct):
    """The dates that are served, where it is known already what one request declares."""

    served: Served
    frame: Request
    found: tuple[Era, dict[str, Any]]

    def negotiate(self, requested: object) -> Era:
        return self.served.negotiate(requested)

    def declared(self, frame: Request) -> tuple[Era, dict[str, Any]] | None:
        return self.found if frame is self.frame else self.served.declared(frame)


class Agreed(Struct):
    """What the body of a request said where its head said the same, and what followed from it."""

    method: str
    name: Any
    meta: dict[str, Any]
    declared: tuple[Era, dict[str, Any]]


@define(eq=False, repr=False)
class Exchanges:
    """Serves the POSTs of dates that have no sessions."""

    endpoint: Endpoint

    async def post(self, head: Head, frame: Frame | Batch, size: int, loan: Loan | None = None) -> Plain | Stream:
        """Serve a message whose body had `size` bytes."""
        if type(frame) is not Request:
            if type(frame) is Notification:
                return Plain(202)
            # basic/transports/streamable-http: one request or notification; clients MUST NOT send responses
            return refuse(400, "the body must be a single request or notification", code=INVALID_REQUEST)
        try:
            eras = self._check(head, frame, size)
        except RemoteProtocolError as error:
            return refuse_frame(error)
        endpoint = self.endpoint
        refusal = endpoint.check_scopes(head, frame)
        if refusal is not None:
            return refusal
        listens = frame.method == "subscriptions/listen"
        if listens:
            loan = None  # it waits in any case
            refusal = self._enter_listener(frame)
        elif not endpoint.admission.enter_at_once(head):
            refusal = await endpoint.admission.enter(head, None, frame.id)
        if refusal is not None:
            return refusal
        link = ExchangeLink(head=head, endpoint=endpoint, listens=listens)
        runtime = endpoint.runtime
        exchange = Exchange(
            id=EXCHANGE_ID, service=runtime.app, link=link, transport="http", runtime=runtime, principal=head.principal
        )
        exchange.peer.eras = eras
        link.exchange = exchange
        if loan is not None:
            loan.rest = partial(self._outcome, link, frame)
        await exchange.deliver(frame, link, None, loan)
        if loan is not None and loan.taken:
            return ELSEWHERE
        if link.phase is Phase.ANSWERED and link.status == 200:
            return Plain(200, JSON, link.answer)
        return await self._outcome(link, frame)

    def _enter_listener(self, frame: Request) -> Plain | None:
        endpoint = self.endpoint
        if endpoint.draining:
            return overloaded("the server is shutting down", 5, request_id=frame.id, close=True)
        if endpoint.listeners >= endpoint.config.max_listeners:
            endpoint.limit("max_listeners")
            return overloaded("too many listen streams are open", 5, request_id=frame.id, limit="max_listeners")
        endpoint.listeners += 1
        return None

    def _check(self, head: Head, frame: Request, size: int) -> Declared:
        """What the headers say and what the body says must be the same, or somebody on the way was misled."""
        served: Served = self.endpoint.runtime.app.eras  # type: ignore[assignment]  # the application's own
        method, params, agreed = frame.method, frame.params, head.agreed
        parameter = NAMED.get(method)
        name = None if parameter is None else params.get(parameter)
        meta = params.get("_meta")
        if agreed is not None and agreed.method == method and agreed.name == name and agreed.meta == meta:
            declared = agreed.declared
        else:
            declared = self._compare_all(head, frame, served, name)
            if size <= _SMALL and type(meta) is dict:
                head.agreed = Agreed(method, name, meta, declared)
        if method == "tools/call" and type(name) is str:
            marks = self.endpoint.runtime.app.parameter_headers(name)
            if marks:
                self._compare_arguments(head, frame, marks)
        return Declared(served, frame, declared)

    def _compare_all(self, head: Head, frame: Request, served: Served, name: Any) -> tuple[Era, dict[str, Any]]:
        date = declared_date(frame.params)
        if date is not None:  # first: a version that is not served must be the same in both places too
            self._compare(head, frame, b"mcp-protocol-version", date)
        declared = served.declared(frame, required=True)
        assert declared is not None
        self._compare(head, frame, b"mcp-method", frame.method)
        if type(name) is str:
            self._compare(head, frame, b"mcp-name", name, encoded=True)
        return declared

    def _compare_arguments(self, head: Head, frame: Request, marks: Mapping[str, tuple[str, ...]]) -> None:
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

    def _compare(self, head: Head, frame: Request, name: bytes, wanted: Any, *, encoded: bool = False) -> None:
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

    async def _outcome(self, link: ExchangeLink, frame: Request) -> Plain | Stream:
        endpoint = self.endpoint
        if link.phase is Phase.PENDING:
            await link.decided()
        if link.phase is Phase.STREAMING:
            stream = Stream(200, EVENTS, link)
            return leased(link.head, stream) if link.listens else stream
        if link.phase is Phase.ANSWERED:
            headers = JSON if link.status == 200 else JSON + endpoint.headers_for(link.status, frame, link.answer)
            return Plain(link.status, headers, link.answer)
        return refuse(500, "the request ended without an answer", request_id=frame.id)


def _means(text: str, value: Any) -> bool:
    """Whether a header's text stands for an argument that is no text."""
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
