"""The server's end of all pipes: one session per pipe.

Theory of operation. One task reads, decodes and delivers; another writes what is in the outbox, 64 KiB at once, so that
a burst of responses costs few writes. Neither has a buffer of its own: a peer that does not read fills the outbox, and
the full outbox blocks the reader; a peer with too many requests has to wait, and is refused only after a timeout.
Cancellations and responses to our own requests are always accepted, because only they can resolve a jam.
"""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio
from msgspec import Struct, field

from mcptrio import telemetry
from mcptrio._actors.lending import Loan
from mcptrio._actors.outbox import Outbox
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._peer.link import RequestHead
from mcptrio._peer.machine import may_start_call
from mcptrio._peer.messages import Cause
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, LARGE_MESSAGE, AnyFrame, JsonLimits, Malformed, Request
from mcptrio.errors import ConnectionLost, Overloaded, RemoteProtocolError
from mcptrio.transports.decoding import decode_in_turns, decode_large, decode_small

from .refusal import refuse

if TYPE_CHECKING:
    from mcptrio.auth.server.principal import Principal

logger = logging.getLogger("mcptrio.pipe")

_AT_ONCE = 32  # messages before other tasks get a turn
_PAUSE = b""
"""Stands in an outbox before a result that must not arrive in one chunk with the progress before it."""
_PROGRESS = b'"notifications/progress"'


class Pipe(Protocol):
    """A bidirectional channel of whole messages.

    The defaults are those of a pipe whose messages are all sent by the writer's task.
    """

    @property
    def gathers(self) -> bool:
        """Whether the responses of a burst of calls are sent together."""
        return True

    @property
    def paced(self) -> bool:
        """Whether `drained` can tell when the peer has read everything."""
        return False

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        """Return the next messages, or the errors in them; empty at the end of the input."""
        ...

    async def send(self, messages: list[bytes]) -> None:
        """Write every message.

        Raises:
            trio.BrokenResourceError: the peer is gone.
        """
        ...

    def send_nowait(self, message: bytes) -> bool:
        """Send one message if the pipe takes it whole and at once; return whether it did."""
        return False

    async def drained(self) -> None:
        """Wait until the peer has read everything, if the pipe is `paced`."""
        await trio.lowlevel.checkpoint()


class Bounds(Protocol):
    """Limits of a peer over all its connections."""

    def opened(self, session: Session, outbox: Outbox) -> None:
        """Count the session of this pipe, and what waits in its outbox."""
        ...

    def check(self, session: Session, frame: AnyFrame) -> None:
        """Admit a message.

        Raises:
            Overloaded: the peer exceeds its limit.
        """
        ...


class PipeLimits(Struct, frozen=True, kw_only=True):
    """The limits of a pipe."""

    linger: float = 0.0
    """Seconds after the end of the input in which running calls are still answered."""
    flush_timeout: float = 1.0
    """Seconds for writing the last responses."""
    stuck_after: float = 0.25
    """Seconds after the end in which handlers must stop; later ones are left behind."""
    json: JsonLimits = DEFAULT_LIMITS
    """Limits of one message."""


class PipeLink(Entity):
    """The link of a session that has its own pipe."""

    pipe: Pipe
    outbox: Outbox = field(default_factory=Outbox)
    per_request = False
    queued = 0.0
    identity = ""
    confirmed = True
    resting = False
    """A session with a pipe has no idle timeout: it ends when the pipe does."""
    head: RequestHead | None = None
    """The HTTP request that opened the pipe, if any."""

    is_last: Callable[[], bool] | None = None
    """Returns whether no other response is pending; None if that does not matter."""
    paced: bool = False
    """Whether a result waits until the peer has read the progress before it: the TypeScript SDK, which most hosts use,
    drops progress that it reads in one chunk with the result."""
    _progress: bool = False
    """Whether progress was posted since the last result."""

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        # Write at once if possible. Only responses of a burst of calls wait for each other, to share one write.
        if not final:
            self._progress = self._progress or (self.paced and _PROGRESS in data)
        elif self._progress:
            self._progress = False
            self.outbox.put(_PAUSE)
        alone = not final or self.is_last is None or self.is_last()
        if not self.outbox.idle or not alone or not self.pipe.send_nowait(data):
            self.outbox.put(data)

    def end(self) -> None:
        self.outbox.close()

    @property
    def full(self) -> bool:
        return self.outbox.full

    async def room(self) -> None:
        await self.outbox.room()

    def close_connection(self) -> None:
        pass

    def hide(self) -> None:
        pass


async def serve_pipe(
    runtime: Runtime,
    pipe: Pipe,
    *,
    transport: str,
    principal: Principal | None = None,
    owner: str = "",
    head: RequestHead | None = None,
    limits: PipeLimits | None = None,
    bounds: Bounds | None = None,
) -> Session:
    """Serve one peer until it disconnects or its session ends; return the session.

    `session.ended` is the reason for its end, `session.handlers.left_behind` counts handlers that could not be stopped.
    A peer that initializes again gets a new session; all calls of the old one are ended.

    Raises:
        Overloaded: there are too many sessions, or the process is about to end.
    """
    limits = limits or PipeLimits()
    pending: deque[bytes | RemoteProtocolError] = deque()
    stuck: Session | None = None
    while True:
        link = PipeLink(pipe, head=head, paced=pipe.paced)
        reader = _Reader(runtime=runtime, link=link, pipe=pipe, bounds=bounds, pending=pending, json=limits.json)
        session = await _serve_session(reader, transport, principal, owner, limits)
        if session.handlers.left_behind:
            stuck = session
        if not reader.again:
            return stuck or session


async def _serve_session(
    reader: _Reader, transport: str, principal: Principal | None, owner: str, limits: PipeLimits
) -> Session:
    runtime, link, pipe, bounds = reader.runtime, reader.link, reader.pipe, reader.bounds
    session = runtime.new_session(link, transport=transport, principal=principal, owner=owner, reader=reader.run)
    reader.session = session
    if bounds is not None:
        bounds.opened(session, link.outbox)
    if pipe.gathers:
        link.is_last = lambda: not reader.pending and not session.peer.ledger.calls
    over = trio.Event()
    session.on_end.append(over.set)
    writing = trio.CancelScope(shield=True)  # a partial message would corrupt the pipe; each exit sets a deadline
    cause = Cause.SESSION_END
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write, pipe, link, writing, reader)
        try:
            await reader.done.wait()
            if not reader.stopped and not reader.again:
                with trio.move_on_after(limits.linger):
                    await session.wait_until_quiet()
            cause = Cause.RESTART if reader.again else Cause.DISCONNECT
        finally:
            reader.stop()
            # The session ends the link when it leaves; the writer then sends the rest and returns.
            session.close_nowait(cause)
            writing.deadline = trio.current_time() + limits.flush_timeout
    if reader.failure is not None:
        raise reader.failure
    with trio.move_on_after(limits.stuck_after):
        await session.handlers.wait_until_left()
    if not session.handlers.left_behind:
        with trio.move_on_after(session.service.limits.end_grace + 1):
            await over.wait()  # the session may take a while to clean up
    link.is_last = None  # the function refers to the session
    return session


async def _write(pipe: Pipe, link: PipeLink, writing: trio.CancelScope, reader: _Reader) -> None:
    outbox = link.outbox
    try:
        with writing, suppress(ConnectionLost, trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                messages = await outbox.take_some()
                await (_send_in_parts(pipe, messages) if _PAUSE in messages else pipe.send(messages))
    finally:
        outbox.drop()
        reader.stop()


async def _send_in_parts(pipe: Pipe, messages: list[bytes]) -> None:
    """Send messages; at each pause let the peer read those before it."""
    while messages:
        at = messages.index(_PAUSE) if _PAUSE in messages else len(messages)
        if at:
            await pipe.send(messages[:at])
        if at < len(messages):
            await pipe.drained()
        messages = messages[at + 1 :]


class _Reader(Entity, kw_only=True):
    """The reader of a pipe. It lends its task to handlers; if one of them waits, a new task continues to read.

    Borrows: everything.
    """

    runtime: Runtime
    link: PipeLink
    pipe: Pipe
    bounds: Bounds | None
    json: JsonLimits
    session: Session = None  # type: ignore[assignment]  # set before it runs
    pending: deque[bytes | RemoteProtocolError] = field(default_factory=deque)
    """Received messages that are not delivered yet."""
    done: trio.Event = field(default_factory=trio.Event)
    again: bool = False
    """The peer initializes again: a new session has to continue reading."""
    stopped: bool = False
    failure: Exception | None = None
    """The error of the pipe."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """The cancel scope of the task that reads now."""
    _jammed: bool = False

    def stop(self) -> None:
        """Stop reading."""
        self.stopped = True
        self.scope.cancel()

    @trio.lowlevel.enable_ki_protection  # it runs in the session, whose guard would swallow a Ctrl-C
    async def run(self) -> None:
        with self.scope as scope:
            try:
                await self._read_on()
            except ConnectionLost:
                pass  # the session is over
            except Exception as error:  # noqa: BLE001 - `serve_pipe` raises it
                self.failure = error
            finally:
                if self.scope is scope:
                    self.done.set()

    def _pass_on(self) -> None:
        """Let another task continue reading, because a handler occupies the current one."""
        self.scope = trio.CancelScope()
        if self.stopped:
            self.scope.cancel()
        self.session.spawn(self.run, name=f"reader · {self.session.label}")

    async def _read_on(self) -> None:
        loan, deliver, link, outbox, pending = Loan(), self.session.deliver, self.link, self.link.outbox, self.pending
        supervisor = self.runtime.supervisor
        context = contextvars.copy_context()  # the same for every message
        at_once = 0
        while True:
            while pending:
                message = pending.popleft()
                frame: AnyFrame
                try:
                    if isinstance(message, RemoteProtocolError):
                        frame = Malformed(message)
                    elif len(message) > LARGE_MESSAGE and self.bounds is None:  # the pipe is its owner's process
                        frame = await decode_in_turns(message, self.json)
                    elif len(message) > LARGE_MESSAGE:
                        frame = await decode_large(self.runtime, self.session.owner, message, self.json)
                    else:
                        frame = decode_small(message, self.json)
                except RemoteProtocolError as error:
                    frame = Malformed(error)
                if type(frame) is Malformed:
                    self._report(frame.error)
                elif type(frame) is Request and frame.method == "initialize" and self.session.peer.is_open:
                    pending.appendleft(message)
                    self.again = True
                    return
                if (self.session.congested or supervisor.draining) and may_start_call(frame):
                    frame = await self._admit(frame)
                if self.bounds is not None:
                    frame = self._check(self.bounds, frame)
                await deliver(frame, link, context, loan)
                if loan.call is not None and await loan.run(self._pass_on):
                    return
                at_once += 1
                if not at_once % _AT_ONCE:
                    await trio.lowlevel.checkpoint()
                del message, frame  # a decoded message may take megabytes, and the peer may send nothing for hours
            if outbox.full:
                self._limit("outbox")
                await outbox.room()
            messages = await self.pipe.receive()
            if not messages:
                return
            pending.extend(messages)

    async def _admit(self, frame: AnyFrame) -> AnyFrame:
        """Wait for room; return the frame, or its refusal."""
        if self.runtime.supervisor.draining:
            return refuse(frame, "the server is shutting down", 5)
        if not self._jammed:
            with trio.move_on_after(self.session.service.limits.busy_timeout):
                await self.session.wait_for_room()
        self._jammed = self.session.congested
        if not self._jammed:
            return frame
        self._limit("waiting")
        return refuse(frame, "too many requests are waiting", 1)

    def _check(self, bounds: Bounds, frame: AnyFrame) -> AnyFrame:
        try:
            bounds.check(self.session, frame)
        except Overloaded as error:
            return refuse(frame, str(error), error.retry_after, error.limit)
        return frame

    def _report(self, error: RemoteProtocolError) -> None:
        logger.warning("a message could not be read: %s", error.message)
        if error.limit is not None:
            self._limit(error.limit)

    def _limit(self, name: str) -> None:
        if hub := self.runtime.hub:
            hub.emit(telemetry.LimitHit(name=name, session=self.session.id))
