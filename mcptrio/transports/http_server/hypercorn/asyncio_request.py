"""One request of an asyncio server, served by Trio.

Theory of operation. A request has two halves in one thread. The Trio half is a task of the guest's nursery that runs
the ordinary application; its `receive` and `send` are methods of `AsyncioRequest`. The asyncio half is the task in
which the server called the application: it performs the `send` calls, in order, because a framework's `send` may
belong to its task. It reads the first messages too, since they are usually there already, and is interrupted if the
Trio half has something to send before. A later `receive` gets a task of its own, because the Trio half waits for a
disconnect while it sends. Waking Trio costs more than all else here, so the last `send` is not awaited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from mcptrio._bridge.guest import Guest
from mcptrio.transports.http_server.hypercorn.asgi import Message, Receive, Scope, Send

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_READ_AHEAD: Final = 2  # messages: Hypercorn reports the end of a body in one of its own
_GONE: Final = "the ASGI server has ended this request"


class AsyncioRequest:
    """The two halves of one request, HTTP or WebSocket."""

    def __init__(self, guest: Guest, receive: Receive, send: Send, *, write_timeout: float) -> None:
        self._guest = guest
        self._host_receive, self._host_send = receive, send
        self._write_timeout = write_timeout
        self._scope = trio.CancelScope()
        self._incoming: deque[Message] = deque()
        self._outgoing: deque[Message] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._reads_first: asyncio.Task[Any] | None = None  # the asyncio half, while it reads itself
        self._interrupted = False  # whether `_ring` has ended that
        self._bell: asyncio.Future[None] | None = None  # wakes the asyncio half
        self._receiving: trio.lowlevel.Task | None = None  # the Trio task that waits for a message
        self._sending: trio.lowlevel.Task | None = None  # the Trio task that waits until its message was sent
        self._limit: asyncio.Timeout | None = None  # of the asyncio half, while it may send
        self._failure: Exception | None = None
        self._ended = False

    # -- the asyncio half

    async def serve(self, app: Application, scope: Scope) -> None:
        """Serve the request. Called in asyncio, once."""
        self._guest.nursery.start_soon(self._run, app, scope, name=f"{scope.get('method', 'WS')} {scope['path']}")
        try:
            async with asyncio.timeout(None) as self._limit:
                if scope.get("method") != "GET":
                    await self._read_first()
                while not self._ended or self._outgoing:
                    await self._send_all()
                    if not self._ended:
                        self._bell = self._guest.loop.create_future()
                        await self._bell
        except TimeoutError:
            pass  # the client does not read: the server closes a connection whose response has no end
        finally:
            self._limit = None
            await self._end()
        if self._failure is not None and not isinstance(self._failure, OSError | trio.BrokenResourceError):
            raise self._failure

    async def _read_first(self) -> None:
        """Read until the body has ended, or `_ring` ends the wait."""
        self._reads_first = task = asyncio.current_task()
        try:
            await self._read_some()
        except asyncio.CancelledError:
            if not self._interrupted or task is None or task.uncancel():
                raise  # the server has cancelled the request
        finally:
            self._reads_first = None

    async def _send_all(self) -> None:
        while self._outgoing:
            try:
                await self._host_send(self._outgoing.popleft())
            except Exception as error:  # noqa: BLE001 - it goes to the Trio half
                self._failure = error
                self._outgoing.clear()
        if (task := self._sending) is not None:
            self._sending = None
            trio.lowlevel.reschedule(task)

    async def _end(self) -> None:
        """Wait for the end of the Trio half and of the reader, which are cancelled if they still run."""
        cancelled: asyncio.CancelledError | None = None
        if self._reader is not None:
            self._reader.add_done_callback(self._on_read)  # a task that is cancelled before it began runs no `finally`
            self._reader.cancel()
        if not self._ended:
            self._failure = self._failure or OSError(_GONE)
            self._scope.cancel()
        while not self._ended or self._reader is not None:
            self._bell = self._guest.loop.create_future()
            try:
                await self._bell
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _on_read(self, _: asyncio.Task[None]) -> None:
        self._reader = None
        self._ring()

    def _read(self) -> None:
        if self._reader is None and self._reads_first is None:
            self._reader = self._guest.loop.create_task(self._read_some())

    async def _read_some(self) -> None:
        try:
            while len(self._incoming) < _READ_AHEAD:
                self._incoming.append(message := await self._host_receive())
                if not message.get("more_body"):
                    break
                self._wake_receiver()
        except Exception as error:  # noqa: BLE001 - it goes to the Trio half
            self._failure = self._failure or error
        finally:
            self._reader = None
            self._wake_receiver()
            if self._limit is None:
                self._ring()

    def _wake_receiver(self) -> None:
        if (task := self._receiving) is not None:
            self._receiving = None
            trio.lowlevel.reschedule(task)

    # -- the Trio half

    async def _run(self, app: Application, scope: Scope) -> None:
        try:
            with self._scope:
                await app(scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - it goes to the asyncio half, whose server logs it
            self._failure = self._failure or error
        finally:
            self._ended = True
            if not self._guest.loop.is_closed():
                self._guest.loop.call_soon(self._hurry, self._write_timeout)  # most requests have ended by then
                self._ring()

    def _ring(self) -> None:
        if self._reads_first is not None:
            if not self._interrupted:
                self._interrupted = True
                self._reads_first.cancel()
        elif self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def _hurry(self, seconds: float) -> None:
        """Give the asyncio half so many seconds for what it still has to send."""
        waits = self._bell is not None and not self._bell.done()
        if self._limit is not None and not self._limit.expired() and (self._outgoing or not waits):
            self._limit.reschedule(self._guest.loop.time() + seconds)

    async def receive(self) -> Message:
        """Wait for the next message of the server."""
        while not self._incoming:
            if self._failure is not None:
                raise trio.BrokenResourceError(_GONE) from self._failure
            self._read()
            self._receiving = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_receiving)
        return self._incoming.popleft()

    def _stop_receiving(self, _: Any) -> trio.lowlevel.Abort:
        self._receiving = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def send(self, message: Message) -> None:
        """Send a message, and wait until the server took it, unless it is the start or the end of a response."""
        if self._failure is None:
            self._outgoing.append(message)
            self._ring()
            if message["type"] == "http.response.start" or message.get("more_body") is False:
                return
            self._sending = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_sending)
        if self._failure is not None:
            raise trio.BrokenResourceError(_GONE) from self._failure

    def _stop_sending(self, _: Any) -> trio.lowlevel.Abort:
        self._sending = None
        self._hurry(0)
        return trio.lowlevel.Abort.SUCCEEDED
