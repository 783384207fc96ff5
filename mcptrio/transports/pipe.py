"""What every pipe has in common: messages come in, messages go out, one session lives as long as it does.

Theory of operation. One task reads, decodes and delivers; another writes whatever has gathered in the outbox in one go,
so that a burst of answers costs few writes. Neither holds anything of its own: a peer that does not read fills the
outbox, which stops the reader; a peer that asks for too much at once is made to wait, and refused only when waiting
does not help. Cancels and answers to our own questions always get through, or nothing could ever clear the jam.
"""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import trio
from msgspec import Struct, field

from mcptrio import telemetry
from mcptrio._actors.link import Outbox
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Batch, Frame, Malformed, Request, decode
from mcptrio.errors import INTERNAL_ERROR, LinkClosed, Overloaded, RemoteProtocolError

logger = logging.getLogger("mcptrio.pipe")

_AT_ONCE = 32  # messages before others have their turn


class Pipe(Protocol):
    """Carries whole messages in both directions."""

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        """The messages that came next, or what was wrong with them; nothing at all when the peer is done."""
        ...

    async def send(self, messages: list[bytes]) -> None:
        """Write every message.

        Raises:
            trio.BrokenResourceError: the peer is gone.
        """
        ...


class Bounds(Protocol):
    """What the peer may do beyond this pipe: with all its connections together."""

    def opened(self, session: Session) -> None:
        """Count the session of this pipe."""
        ...

    def check(self, session: Session) -> None:
        """Let a request begin.

        Raises:
            Overloaded: the peer asks for more than it may.
        """
        ...


class PipeLimits(Struct, frozen=True, kw_only=True):
    """How long a pipe waits for what."""

    linger: float = 0.0
    """Seconds: when the peer is done sending, calls that end within so long are still answered."""
    flush_timeout: float = 1.0
    """Seconds that the last answers may take to be written."""
    patience: float = 5.0
    """A request that found no room for so many seconds is refused."""
    stuck_after: float = 0.25
    """Handlers that are still there so many seconds after the end are left behind."""


class PipeLink(Entity):
    """The link of a session that has a pipe to itself."""

    outbox: Outbox = field(default_factory=Outbox)
    shared: bool = True
    attached: bool = True
    """A session with a pipe is never idle: it ends when the pipe does."""
    head: Any = None
    """The HTTP request that opened the pipe, where there was one."""

    send_nowait: Callable[[bytes], bool] | None = None
    """Writes one message at once if the pipe takes it whole; None where that cannot be known."""
    is_last: Callable[[], bool] | None = None
    """Whether no other answer is to come; None where it does not matter."""

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        # The answer to the only call is written here and now; those of a burst gather, and leave in one write.
        if (
            final
            and self.send_nowait is not None
            and self.outbox.idle
            and (self.is_last is None or self.is_last())
            and self.send_nowait(data)
        ):
            return
        self.outbox.put(data)

    def end(self) -> None:
        self.outbox.close()

    async def room(self) -> None:
        await self.outbox.room()


async def serve_pipe(
    runtime: Runtime,
    pipe: Pipe,
    *,
    transport: str,
    principal: Any = None,
    head: Any = None,
    limits: PipeLimits | None = None,
    bounds: Bounds | None = None,
) -> Session:
    """Serve one peer until it hangs up or its session ends, and return the session.

    `session.ended` says why it is over, `session.left_behind` how many handlers could not be stopped.

    Raises:
        Overloaded: there are too many sessions, or the process is about to end.
    """
    limits = limits or PipeLimits()
    link = PipeLink(head=head)
    reader = _Reader(runtime=runtime, link=link, pipe=pipe, patience=limits.patience, bounds=bounds)
    session = runtime.new_session(link, transport=transport, principal=principal, carrier=reader.run)
    reader.session = session
    if bounds is not None:
        bounds.opened(session)
    link.send_nowait = getattr(pipe, "send_nowait", None)
    if getattr(pipe, "gathers", True):
        link.is_last = lambda: not reader.pending and session.peer.is_done
    over = trio.Event()
    session.on_end.append(over.set)
    writing = trio.CancelScope(shield=True)  # a message cut in two would spoil the pipe; each way out sets a deadline
    cause = Cause.SESSION_END
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write, pipe, link, writing, reader)
        try:
            await reader.done.wait()
            if not reader.stopped:
                with trio.move_on_after(limits.linger):
                    await session.wait_until_quiet()
            cause = Cause.DISCONNECT
        finally:
            reader.stop()
            # The session ends the link when it leaves; the writer takes what is left, and is done.
            session.close_nowait(cause)
            writing.deadline = trio.current_time() + limits.flush_timeout
    if reader.failure is not None:
        raise reader.failure
    with trio.move_on_after(limits.stuck_after):
        await session.wait_until_left()
    if not session.left_behind:
        with trio.move_on_after(session.service.limits.end_grace + 1):
            await over.wait()  # the session's own state may take its time
    return session


async def _write(pipe: Pipe, link: PipeLink, writing: trio.CancelScope, reader: _Reader) -> None:
    outbox = link.outbox
    with writing:
        try:
            while True:
                await pipe.send(await outbox.take_all())
        except (LinkClosed, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    outbox.close()
    reader.stop()


class _Reader(Entity, kw_only=True):
    """Decodes and delivers, in a task that it lends to handlers: when one of them waits, another task reads on.

    Lent: everything.
    """

    runtime: Runtime
    link: PipeLink
    pipe: Pipe
    patience: float
    bounds: Bounds | None
    session: Session = None  # type: ignore[assignment]  # there before it runs
    pending: deque[bytes | RemoteProtocolError] = field(default_factory=deque)
    """What was received and not delivered yet."""
    done: trio.Event = field(default_factory=trio.Event)
    stopped: bool = False
    failure: Exception | None = None
    """What the pipe raised."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the task that reads now."""
    _jammed: bool = False

    def stop(self) -> None:
        """Read no more."""
        self.stopped = True
        self.scope.cancel()

    @trio.lowlevel.enable_ki_protection  # it runs in the session, whose guard would swallow a Ctrl-C
    async def run(self) -> None:
        with self.scope as scope:
            try:
                await self._read_on(scope)
            except LinkClosed:
                pass  # the session is over
            except Exception as error:  # noqa: BLE001 - raised again by whoever serves this pipe
                self.failure = error
            finally:
                if self.scope is scope:
                    self.done.set()

    def pass_on(self) -> None:
        """A handler keeps this task, and its scope."""
        self.scope = trio.CancelScope()
        if self.stopped:
            self.scope.cancel()
        self.session.start_carrier(self.run)

    async def _read_on(self, scope: trio.CancelScope) -> None:
        deliver, link, outbox, pending = self.session.deliver, self.link, self.link.outbox, self.pending
        supervisor = self.runtime.supervisor
        context = contextvars.copy_context()  # of the pipe: the same for every message
        at_once = 0
        while True:
            while pending:
                frame = self._read(pending.popleft())
                if (self.session.congested or supervisor.draining) and type(frame) in (Request, tuple):
                    frame = await self._admit(frame)
                if self.bounds is not None and type(frame) in (Request, tuple):
                    frame = self._check(self.bounds, frame)
                await deliver(frame, link, context, self)
                if self.scope is not scope:
                    return
                at_once += 1
                if not at_once % _AT_ONCE:
                    await trio.lowlevel.checkpoint()
            if outbox.full:
                self._limit("outbox")
                await outbox.room()
            messages = await self.pipe.receive()
            if not messages:
                return
            pending.extend(messages)

    async def _admit(self, frame: Frame | Batch | Malformed) -> Frame | Batch | Malformed:
        """The frame, when there is room for it; otherwise its refusal."""
        if self.runtime.supervisor.draining:
            return refuse(frame, "the server is shutting down", 5)
        if not self._jammed:
            with trio.move_on_after(self.patience):
                await self.session.wait_for_room()
        self._jammed = self.session.congested
        if not self._jammed:
            return frame
        self._limit("waiting")
        return refuse(frame, "too many requests are waiting", 1)

    def _check(self, bounds: Bounds, frame: Frame | Batch | Malformed) -> Frame | Batch | Malformed:
        try:
            bounds.check(self.session)
        except Overloaded as error:
            return refuse(frame, str(error), error.retry_after, error.limit)
        return frame

    def _read(self, message: bytes | RemoteProtocolError) -> Frame | Batch | Malformed:
        try:
            if isinstance(message, RemoteProtocolError):
                raise message
            return decode(message)
        except RemoteProtocolError as error:
            logger.warning("a message could not be read: %s", error.message)
            if error.limit is not None:
                self._limit(error.limit)
            return Malformed(error)

    def _limit(self, name: str) -> None:
        if hub := self.runtime.hub:
            hub.emit(telemetry.LimitHit(name=name, session=self.session.id))


def refuse(
    frame: Frame | Batch | Malformed, why: str, retry_after: int, limit: str | None = None
) -> Frame | Batch | Malformed:
    """What to deliver in place of a request, or a batch of them, so that it is answered with an error."""
    if isinstance(frame, tuple):
        return tuple(refuse(member, why, retry_after, limit) for member in frame)  # type: ignore[misc]  # no batches
    if not isinstance(frame, Request):
        return frame
    data: dict[str, Any] = {"retryAfter": retry_after}
    if limit is not None:
        data["limit"] = limit
    return Malformed(RemoteProtocolError(f"overloaded: {why}", code=INTERNAL_ERROR, request_id=frame.id, data=data))
