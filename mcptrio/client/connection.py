"""One connection: a session with the server over one line, from opening to the end.

Theory of operation. The session's loop posts encoded frames to the connection, which is its link and passes them on to
the line of a transport; what the transport receives is delivered to the session. A connection is never mended: when its
line is gone, everything that waits on it fails, and whoever needs the server opens another one.
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

from mcptrio import telemetry
from mcptrio._actors.call import Call, Limits
from mcptrio._actors.router import Route, Router
from mcptrio._actors.session import Session
from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._peer.messages import Cause, Opened, Received
from mcptrio._wire.jsonrpc import Batch, Frame, Notification, Request, Response
from mcptrio.client.config import ClientConfig
from mcptrio.client.host import Host
from mcptrio.client.methods import METHODS
from mcptrio.client.patience import Patience, Wait
from mcptrio.errors import LinkClosed, McpError, RemoteProtocolError, RequestTimeout
from mcptrio.transports.carrier import Carrier, Line
from mcptrio.transports.pipe import refuse
from mcptrio.types import LoggingLevel, ServerCapabilities

logger = logging.getLogger("mcptrio.client")

LISTEN: Final = "subscriptions/listen"
_LISTEN: Final = b'"method":"subscriptions/listen"'
_MAX_QUESTIONS: Final = 1000
"""So many requests of the server may wait for the host's callbacks; more are refused."""
_numbers: Final = itertools.count(1)


@define(eq=False, repr=False, kw_only=True)
class ClientService:
    """What a client's session is a session of."""

    config: ClientConfig
    host: Host
    eras: Served
    telemetry: telemetry.Hub = field(factory=telemetry.Hub)
    routes: tuple[Route, ...] = ()
    """Rows of the user's own."""
    log_level: LoggingLevel | None = None
    """The least severe log messages that are asked for."""
    patience: Patience = field(factory=Patience, init=False)
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

    def make_context(self, session: Session, call: Call) -> Asking:
        return Asking(session.data["connection"], self.host, call.start.method)

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        return result

    def may_replay(self, start: Start) -> bool:
        return False

    def request_scope(self, session: Session, call: Call) -> AbstractAsyncContextManager[Any] | None:
        return None

    def offers_now(self) -> Container[str]:
        return self.host.capabilities(stateful=True)


@define(eq=False, repr=False)
class Asking:
    """What the client's handlers get: who asks, and what for."""

    connection: Connection
    host: Host
    method: str


@define(eq=False, repr=False, kw_only=True)
class Connection:
    """One session with the server.

    Owns: the session's task and the line, while `run` runs.   Lent: the service, the carrier.
    """

    service: ClientService
    carrier: Carrier
    on_told: Callable[[str, dict[str, Any]], None]
    """Gets every notification of the server's, in the session's loop."""
    mirror: Callable[[str, Mapping[str, Any]], Mapping[str, str]]
    """The headers that repeat arguments of a request."""
    shared: bool = True
    session: Session = field(init=False)
    era: Era | None = None
    capabilities: ServerCapabilities | None = None
    meta: tuple[Era, LoggingLevel | None, dict[str, Any]] | None = None
    """What every request of a stateless date says of its sender, and what that was made of."""
    _line: Line | None = None
    _over: trio.Event = field(factory=trio.Event)
    _why: str = ""
    _fault: str = ""
    """What the server did that it must not, and that the connection ended for."""
    _listens: dict[str, Callable[[int | str], None]] = field(factory=dict)
    """Marker in a listen request -> who wants to know the id that it got."""
    _ended_by_server: dict[int | str, Callable[[], None]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.session = Session(
            id=f"client-{next(_numbers)}", service=self.service, link=self, transport=self.carrier.name
        )
        self.session.data["connection"] = self

    @property
    def started(self) -> bool:
        return self._line is not None

    @property
    def alive(self) -> bool:
        return self._line is not None and not self._over.is_set() and self.session.ended is None

    @property
    def why(self) -> str:
        """Why it is over."""
        return self._why

    async def wait_over(self) -> None:
        await self._over.wait()

    # -- its life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry frames until somebody closes the connection, or the server is gone."""
        async with trio.open_nursery() as nursery:
            async with self.carrier.open(self) as self._line:
                nursery.start_soon(self._run_session)
                task_status.started()
                try:
                    await self._over.wait()
                finally:
                    self._end("the connection failed")
            # The session ends by itself; a callback that ignores its cancellation is not waited for.
            nursery.cancel_scope.deadline = trio.current_time() + 1

    async def _run_session(self) -> None:
        try:
            await self.session.run()
        finally:
            self._end("the session ended")

    def close(self) -> None:
        self._end("the client was closed")

    def lost(self, reason: str) -> None:
        """Nothing comes or goes any more: whoever waits is told."""
        self._end(reason)

    def _end(self, reason: str) -> None:
        if not self._over.is_set():
            self._why = reason
            self._over.set()
        self.session.close_nowait(Cause.DISCONNECT)

    # -- the session's link

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self._line is None:
            return
        if self._listens and _LISTEN in data[:100]:
            frame = msgspec.json.decode(data)
            found = self._listens.pop(frame["params"]["_meta"]["progressToken"], None)
            if found is not None:
                found(frame["id"])
        self._line.post(data)

    def end(self) -> None:
        pass

    async def room(self) -> None:
        if self._line is not None:
            await self._line.room()

    # -- the transport's receiver

    async def deliver(self, frame: Frame | Batch) -> None:
        if self.era is not None and not self.era.stateful:
            members = frame if isinstance(frame, tuple) else (frame,)
            for request in (member for member in members if isinstance(member, Request)):
                # 2026-07-28 basic/patterns: servers MUST NOT initiate requests, and clients do not send responses. So
                # it cannot be refused; and on a pipe nobody can say which call it belongs to.
                self._fault = f"the server sent a request ({request.method:.80}), which its protocol version forbids"
                logger.warning("%s", self._fault)
                self.lost(self._fault)
                raise LinkClosed(self._fault)
            if isinstance(frame, Notification) and frame.method == "notifications/cancelled":
                done = self._ended_by_server.get(frame.params.get("requestId", ""))
                if done is not None:
                    done()
                return
        elif type(frame) in (Request, tuple) and self.session.congested:
            await self.session.deliver(refuse(frame, "too many requests are waiting", 1), self)
            return
        await self.session.deliver(frame, self)

    def deliver_nowait(self, answer: Response) -> bool:
        """Something that the server answered, if it can be taken here and now."""
        return self.session.post_nowait(Received(answer, self))

    def headers_for(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        return self.mirror(method, params)

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        self.on_told(method, params)

    # -- asking

    def opened(self, era: Era, capabilities: dict[str, Any], typed: ServerCapabilities) -> None:
        """It is known what the server speaks and offers."""
        self.era, self.capabilities = era, typed
        if self._line is not None:
            self._line.speak(era)
        self.session.post_nowait(Opened(era, capabilities))

    def switch(self, era: Era) -> None:
        """Speak another date of the same kind from now on."""
        self.era = era
        if self._line is not None:
            self._line.speak(era)
        self.session.post_nowait(Opened(era, self.session.peer.capabilities))

    async def confirm(self) -> None:
        """Say `notifications/initialized`, and wait until it has arrived."""
        await self.session.notify("notifications/initialized", {})
        assert self._line is not None
        await self._line.confirmed()

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,
        wait: Wait | None = None,
    ) -> dict[str, Any]:
        """Ask the server and wait for its result, for as long as it shows signs of life.

        Raises:
            McpError, LinkClosed, RequestTimeout, RemoteProtocolError, CapabilityMissing
        """
        if wait is None:
            wait = Wait(method=method, idle=self.service.config.timeout if timeout is None else timeout)
        patience = self.service.patience
        patience.begin(wait)
        try:
            if self._line is not None and self._line.full:
                await self._wait_for_room(wait)
            result = await self.session.ask(method, params, reply=wait)
        except LinkClosed as error:
            if self._fault:
                raise RemoteProtocolError(f"{method}: {self._fault}") from error
            raise LinkClosed(f"{method}: {self._why or error}") from error
        except McpError as error:
            if isinstance(error.data, Exception):
                raise error.data from None  # of this side: nothing that came as JSON is an exception
            raise
        finally:
            patience.end(wait)
        if type(result) is not dict:
            raise RemoteProtocolError(f"the result of {method} is no object")
        return result

    async def _wait_for_room(self, wait: Wait) -> None:
        """Before a server that does not read: what was not sent yet need not be kept when its caller gives up."""
        with trio.CancelScope() as scope:
            wait.on_late = scope.cancel
            await self.room()
        wait.on_late = None
        if scope.cancel_called:
            raise wait.timeout()

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell the server something; waits while it does not keep up.

        Raises:
            LinkClosed, RequestTimeout
        """
        seconds = self.service.config.timeout
        with trio.move_on_after(seconds):
            try:
                await self.session.notify(method, params)
            except LinkClosed as error:
                raise LinkClosed(f"{method}: {self._why or error}") from error
            return
        raise RequestTimeout(f"{method} could not be sent within {seconds:g} s")

    def expect_listen(self, marker: str, found: Callable[[int | str], None]) -> None:
        """Have `found` called with the id that the listen request with this marker is sent under."""
        self._listens[marker] = found

    def on_server_cancel(self, request_id: int | str, done: Callable[[], None]) -> None:
        self._ended_by_server[request_id] = done

    def forget_listen(self, marker: str, request_id: int | str | None) -> None:
        """The request with this marker, and this id if it was sent, waits no more."""
        self._listens.pop(marker, None)
        if request_id is not None:
            self._ended_by_server.pop(request_id, None)
