"""One connection: a session with the server over one link, from opening to the end.

Theory of operation. The session's loop posts encoded frames to the connection, which is its link and passes them on to
the link of a transport; frames that the transport receives are delivered to the session. A connection is never
repaired: when its link is lost, all pending requests fail, and the next request opens another connection.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec
import trio
from attrs import define, field
from msgspec.structs import replace

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.limits import Limits
from mcptrio._actors.router import Route, Router
from mcptrio._actors.service import Actor
from mcptrio._actors.session import Session
from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._peer.link import SessionLink
from mcptrio._peer.messages import Cause, Opened, Received
from mcptrio._wire.jsonrpc import Batch, Error, Frame, JsonLimits, Malformed, Notification, Request, Response
from mcptrio.client.callbacks import HostCallbacks
from mcptrio.client.config import ClientConfig
from mcptrio.client.methods import METHODS
from mcptrio.client.timeouts import TimedReply, Timeouts
from mcptrio.errors import CapabilityMissing, ConnectionLost, MCPError, RemoteProtocolError, RequestTimeout
from mcptrio.telemetry.log import escape
from mcptrio.transports.client import ClientLink, ClientTransport, failure
from mcptrio.transports.pipe.refusal import refuse
from mcptrio.types import LoggingLevel, ServerCapabilities

logger = logging.getLogger("mcptrio.client")

LISTEN: Final = "subscriptions/listen"
_LISTEN: Final = b'"method":"subscriptions/listen"'
_MAX_QUESTIONS: Final = 1000
"""Maximum requests of the server that wait for the host's callbacks; more are refused."""
_MAX_DIGITS: Final = 19
_numbers: Final = itertools.count(1)


@define(eq=False, repr=False, kw_only=True)
class ClientService:
    """The service of a client's session: its routes, limits and capabilities."""

    config: ClientConfig
    callbacks: HostCallbacks
    eras: Served
    telemetry: telemetry.Hub = field(factory=telemetry.Hub)
    routes: tuple[Route, ...] = ()
    """Custom routes."""
    log_level: LoggingLevel | None = None
    """The lowest severity of log messages to request."""
    timeouts: Timeouts = field(factory=Timeouts, init=False)
    role: Role = field(default=Role.CLIENT, init=False)
    limits: Limits = field(init=False)
    router: Router = field(init=False)

    def __attrs_post_init__(self) -> None:
        seconds = self.config.callback_timeout
        self.limits = Limits(
            call_timeout=seconds, call_timeout_hard=seconds, ask_timeout=seconds, waiting=_MAX_QUESTIONS
        )
        self.router = Router()
        self.router.add_all(METHODS)
        for route in self.routes:
            self.router.add(route)
        self.router.freeze()

    def make_context(self, session: Actor, call: Call) -> ClientContext:
        return ClientContext(session.data["connection"], self.callbacks, call.start.method)

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        return result

    def may_replay(self, start: Start) -> bool:
        return False

    def request_scope(self, session: Actor, call: Call) -> AbstractAsyncContextManager[Any] | None:
        return None

    def offers_now(self) -> Container[str]:
        return self.callbacks.capabilities(stateful=True)


def with_own_id(answer: Response | Error) -> Response | Error:
    """Convert an id that is a number in a string to the number, because some servers echo numbers as strings."""
    text = answer.id
    if not isinstance(text, str) or not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS:
        return answer
    return replace(answer, id=int(text)) if str(int(text)) == text else answer


@define(eq=False, repr=False)
class ClientContext:
    """The context that a client's handlers get."""

    connection: Connection
    callbacks: HostCallbacks
    method: str


@define(eq=False, repr=False, kw_only=True)
class Connection(SessionLink):
    """One session with the server.

    Owns: the session's task and the link, while `run` runs.   Borrows: the service, the transport.
    """

    service: ClientService
    transport: ClientTransport
    on_notified: Callable[[str, dict[str, Any]], None]
    """Gets every notification of the server, in the session's loop."""
    mirror: Callable[[str, Mapping[str, Any]], Mapping[str, str]]
    """Returns the headers that repeat arguments of a request."""
    session: Session = field(init=False)
    era: Era | None = None
    capabilities: ServerCapabilities | None = None
    meta: tuple[Era, LoggingLevel | None, dict[str, Any]] | None = None
    """The `_meta` that every request of a stateless date carries, and the values that it was built from."""
    _link: ClientLink | None = None
    _over: trio.Event = field(factory=trio.Event)
    why: str = ""
    """The reason for its end."""
    _fault: str = ""
    """The protocol violation of the server for which the connection was ended."""
    _listens: dict[str, Callable[[int | str], None]] = field(factory=dict)
    """Marker in a listen request -> callback for the id that the request gets."""
    _ended_by_server: dict[int | str, Callable[[], None]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.session = Session(
            id=f"client-{next(_numbers)}", service=self.service, link=self, transport=self.transport.name
        )
        self.session.data["connection"] = self

    @property
    def started(self) -> bool:
        return self._link is not None

    @property
    def alive(self) -> bool:
        return self._link is not None and not self._over.is_set() and self.session.ended is None

    async def wait_over(self) -> None:
        await self._over.wait()

    # -- life cycle

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry frames until the connection is closed or the server is gone."""
        async with trio.open_nursery() as nursery:
            async with self.transport.open(self) as self._link:
                nursery.start_soon(self._run_session)
                task_status.started()
                try:
                    await self._over.wait()
                finally:
                    self._end("the connection failed")
            # The session ends by itself; do not wait for a callback that ignores its cancellation.
            nursery.cancel_scope.deadline = trio.current_time() + 1

    async def _run_session(self) -> None:
        try:
            await self.session.run()
        finally:
            self._end("the session ended")

    def close(self) -> None:
        self._end("the client was closed")

    def lost(self, reason: str) -> None:
        """Fail all pending requests: the link is lost."""
        self._end(reason)

    def _end(self, reason: str) -> None:
        if not self._over.is_set():
            self.why = reason
            self._over.set()
        self.session.close_nowait(Cause.DISCONNECT)

    # -- the session's link

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self._link is None:
            return
        if self._listens and _LISTEN in data[:100]:
            frame = msgspec.json.decode(data)
            found = self._listens.pop(frame["params"]["_meta"]["progressToken"], None)
            if found is not None:
                found(frame["id"])
        self._link.post(data)

    def end(self) -> None:
        pass

    @property
    def full(self) -> bool:
        return self._link is not None and self._link.full

    async def room(self) -> None:
        if self._link is not None:
            await self._link.room()

    # -- the transport's receiver

    async def deliver(self, frame: Frame | Batch) -> None:
        if isinstance(frame, tuple):
            frame = await self._deliver_members(frame)
            if not frame:
                return
        if self.era is not None and not self.era.stateful:
            members = frame if isinstance(frame, tuple) else (frame,)
            for request in (member for member in members if isinstance(member, Request)):
                # 2026-07-28 basic/patterns: servers MUST NOT initiate requests, and clients do not send responses. So
                # it cannot be refused, and on a pipe it cannot be assigned to a call.
                self._fault = f"the server sent a request ({request.method:.80}), which its protocol version forbids"
                logger.warning("%s", escape(self._fault, 1000))
                self.lost(self._fault)
                raise ConnectionLost(self._fault)
            if isinstance(frame, Notification) and frame.method == "notifications/cancelled":
                number = frame.params.get("requestId")
                if isinstance(number, int | str) and (done := self._ended_by_server.get(number)) is not None:
                    done()
                return
        if isinstance(frame, Response | Error) and type(frame.id) is str:
            frame = with_own_id(frame)
        elif type(frame) in (Request, tuple) and self.session.congested:
            await self.session.deliver(refuse(frame, "too many requests are waiting", 1), self)
            return
        await self.session.deliver(frame, self)

    async def _deliver_members(self, frames: Batch) -> Batch:
        """Deliver the answers and notifications of an array, and return its requests.

        Only 2025-03-26 has batches, but some servers of other revisions send answers in arrays too.
        """
        for frame in frames:
            match frame:
                case Malformed(error) if error.request_id is not None:
                    await self.deliver(failure(error.request_id, error))
                case Response() | Error() | Notification():
                    await self.deliver(frame)
        return tuple(frame for frame in frames if isinstance(frame, Request))

    def deliver_nowait(self, answer: Response) -> bool:
        """Deliver a response if that is possible without waiting; return whether it was."""
        if type(answer.id) is str:
            return False  # `deliver` handles it
        return self.session.inbox.post_nowait(Received(answer, self))

    @property
    def json_limits(self) -> JsonLimits:
        return self.service.config.json_limits

    def headers_for(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        return self.mirror(method, params)

    def headers_of(self, request_id: Any) -> Mapping[str, str]:
        ask = self.session.peer.ledger.peek(request_id)
        return (ask.reply.headers or {}) if ask is not None and isinstance(ask.reply, TimedReply) else {}

    # -- requests

    def opened(self, era: Era, capabilities: dict[str, Any], typed: ServerCapabilities) -> None:
        """Record the protocol version and the capabilities of the server."""
        self.era, self.capabilities = era, typed
        if self._link is not None:
            self._link.use_era(era)
        self.session.inbox.post_nowait(Opened(era, capabilities))

    def switch(self, era: Era) -> None:
        """Switch to another date of the same kind."""
        self.era = era
        if self._link is not None:
            self._link.use_era(era)
        self.session.inbox.post_nowait(Opened(era, self.session.peer.capabilities))

    async def confirm(self) -> None:
        """Send `notifications/initialized` and wait until it has arrived."""
        await self.session.asks.notify("notifications/initialized", {})
        assert self._link is not None
        await self._link.confirmed()

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,
        wait: TimedReply | None = None,
    ) -> dict[str, Any]:
        """Send a request and wait for its result; the timeout starts again with every progress report.

        Raises:
            MCPError, ConnectionLost, RequestTimeout, RemoteProtocolError, CapabilityMissing
        """
        if wait is None:
            wait = TimedReply(method=method, idle=self.service.config.timeout if timeout is None else timeout)
        timeouts = self.service.timeouts
        timeouts.begin(wait)
        try:
            if self._link is not None and self._link.full:
                await self._wait_for_room(wait)
            result = await self.session.asks.ask(method, params, reply=wait)
        except ConnectionLost as error:
            if self._fault:
                raise RemoteProtocolError(f"{method}: {self._fault}") from error
            raise ConnectionLost(f"{method}: {self.why or error}") from error
        except MCPError as error:
            if isinstance(error.data, Exception):
                raise error.data from None  # created on this side: decoded JSON never contains an exception
            raise
        finally:
            timeouts.end(wait)
        if type(result) is not dict:
            raise RemoteProtocolError(f"the result of {method} is not an object")
        return result

    async def restore(self, method: str, params: dict[str, Any]) -> bool:
        """Send a request that a new session needs; a refusal is logged, because the session works without it.

        Returns:
            Whether the server accepted it.

        Raises:
            ConnectionLost, RequestTimeout, Overloaded
        """
        try:
            await self.ask(method, params)
            return True
        except (MCPError, RemoteProtocolError, CapabilityMissing) as error:
            logger.warning("the server rejected %s in a new session: %s", method, escape(error, 1000))
            return False

    async def _wait_for_room(self, wait: TimedReply) -> None:
        """Wait before sending to a server that does not read, so that an abandoned request is not queued."""
        with trio.CancelScope() as scope:
            wait.on_late = scope.cancel
            await self.room()
        wait.on_late = None
        if scope.cancel_called:
            raise wait.timeout()

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; blocks while the server does not keep up.

        Raises:
            ConnectionLost, RequestTimeout
        """
        seconds = self.service.config.timeout
        with trio.move_on_after(seconds):
            try:
                await self.session.asks.notify(method, params)
            except ConnectionLost as error:
                raise ConnectionLost(f"{method}: {self.why or error}") from error
            return
        raise RequestTimeout(f"{method} could not be sent within {seconds:g} s")

    def expect_listen(self, marker: str, found: Callable[[int | str], None]) -> None:
        """Call `found` with the id of the listen request that has this marker, when it is sent."""
        self._listens[marker] = found

    def on_server_cancel(self, request_id: int | str, done: Callable[[], None]) -> None:
        self._ended_by_server[request_id] = done

    def forget_listen(self, marker: str, request_id: int | str | None) -> None:
        """Remove the callbacks of a listen request."""
        self._listens.pop(marker, None)
        if request_id is not None:
            self._ended_by_server.pop(request_id, None)
