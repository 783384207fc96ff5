"""The inbox of a session: a bounded memory channel, and two shortcuts around it.

A step never waits, so only the order of the messages matters. This permits two shortcuts, both private to this module:

- *In place.* A message that finds the session idle is processed at once, by the task that posts it.
- *Sleep.* An idle session may give up its task, its nursery and the channel. Messages are still processed in place;
  `wake` is called when the session needs a task again. This makes thousands of idle sessions cheap.

A message that is posted during a step, or while others are queued, goes through the channel. So messages are processed
one after the other, in the order in which they were posted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import trio

from mcptrio._peer.messages import Message
from mcptrio._struct import Entity
from mcptrio.errors import ConnectionLost


class Inbox(Entity):
    """A bounded queue of messages; iterate over it to process them.

    Owns: the channel.   Borrows: the step of its session.
    """

    step: Callable[[Message], None]
    """Process one message. It never waits."""
    size: int
    """Messages in the channel; senders block when it is full."""
    wake: Callable[[], None]
    """Start the task of a session that sleeps."""
    on_full: Callable[[], None]
    asleep: bool = False
    """Whether the session has no task."""
    closed: str | None = None
    """Why no messages are accepted any more."""
    _idle: bool = False
    """No message is queued, and the session's task waits for one or does not exist."""
    _stepping: bool = False
    """A message is being processed in place."""
    _stopped: bool = False
    _in_a_row: int = 0
    """Messages that the loop took without giving other tasks a turn."""
    _failure: Exception | None = None
    """An exception that was raised while a message was processed in place. The session's own task raises it."""
    # Created on demand: there may be thousands of idle sessions.
    _sender: trio.MemorySendChannel[Message] | None = None
    _receiver: trio.MemoryReceiveChannel[Message] | None = None
    _overflow: deque[Message] | None = None
    """Messages that must not be lost and found the channel full: at most one for each running call and open ask."""
    _watchers: trio.lowlevel.ParkingLot | None = None

    # -- posting

    @property
    def idle(self) -> bool:
        """Whether a message would be processed in place."""
        return self._idle and not self._stepping

    async def post(self, message: Message) -> None:
        """Process or queue a message; blocks while the channel is full.

        Raises:
            ConnectionLost: the session is over.
        """
        if self.post_nowait(message):
            return
        if self.closed is None and not self._stopped:
            self.on_full()
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.open().send(message)
                return
        raise ConnectionLost(self.closed or "the session is over")

    def post_nowait(self, message: Message) -> bool:
        """Process or queue a message; return False if the channel is full or the session is over."""
        if self._idle and not self._stepping:
            self._process_in_place(message)
            return True
        if self.closed is not None or self._stopped:
            return False
        try:
            self.open().send_nowait(message)
        except trio.WouldBlock:
            return False
        return True

    def post_soon(self, message: Message) -> None:
        """Post a message that must not be lost, even if the channel is full."""
        if not self.post_nowait(message) and self.closed is None:
            if self._overflow is None:
                self._overflow = deque()
            self._overflow.append(message)

    def _process_in_place(self, message: Message) -> None:
        self._stepping = True
        try:
            self.step(message)
        except Exception as error:  # noqa: BLE001 - a failure of the session, not of the sender: its own task raises it
            self._failure = error
            self.stop()
        finally:
            self._stepping = False
        if self._watchers is not None:
            self._watchers.unpark_all()

    def open(self) -> trio.MemorySendChannel[Message]:
        """Return the channel. A session that sleeps is woken."""
        self._idle = False
        if self._sender is None:
            self._sender, self._receiver = trio.open_memory_channel[Message](self.size)
            if self.asleep:
                self.asleep = False
                self.wake()
        return self._sender

    # -- the session's loop

    def __aiter__(self) -> Inbox:
        self.open()
        return self

    async def __anext__(self) -> Message:
        """Return the next message; stop when the session is over or asleep."""
        channel = self._receiver
        if channel is None:
            raise StopAsyncIteration
        self._in_a_row += 1
        if self._in_a_row >= self.size:
            self._in_a_row = 0
            await trio.lowlevel.checkpoint()
        message = None if self._stopped else self._next_queued(channel)
        if message is None and not self._stopped:
            self._idle = True
            self.changed()
            with suppress(trio.EndOfChannel):  # from `stop` or `sleep`
                message = await channel.receive()
                self._idle = False
            self._in_a_row = 0
        if self._failure is not None:
            raise self._failure
        if message is not None and not self._stopped:
            return message
        if message is not None:
            self._overflow = deque((message, *(self._overflow or ())))  # `close` returns it
        raise StopAsyncIteration

    def _next_queued(self, channel: trio.MemoryReceiveChannel[Message]) -> Message | None:
        with suppress(trio.WouldBlock):
            return channel.receive_nowait()
        return self._overflow.popleft() if self._overflow else None

    def stop(self) -> None:
        """End the loop: the session is over."""
        self._stopped = True
        self.open().close()

    def close(self, reason: str) -> list[Message]:
        """Accept no more messages; return those that were not processed."""
        left = list(self._overflow or ())
        if self._receiver is not None:
            with suppress(trio.WouldBlock, trio.EndOfChannel):
                while True:
                    left.append(self._receiver.receive_nowait())
            self._receiver.close()
        self.closed, self._idle, self._overflow = reason, False, None
        self.step = self.wake = self.on_full = _do_nothing  # they refer to the session
        self.changed()
        return left

    def sleep(self) -> None:
        """End an idle loop, and do without a task until one is needed."""
        if self._sender is not None:
            self._sender.close()
        self.asleep = self._idle = True
        self._sender = self._receiver = None
        self.changed()

    # -- observing

    @property
    def backlog(self) -> int:
        """How many messages are queued."""
        return 0 if self._receiver is None else self._receiver.statistics().current_buffer_used

    async def wait_for_change(self) -> None:
        """Wait until a message was processed or a handler has ended."""
        if self._watchers is None:
            self._watchers = trio.lowlevel.ParkingLot()
        await self._watchers.park()

    def changed(self) -> None:
        """Wake the tasks that wait for a change."""
        if self._watchers is not None:
            self._watchers.unpark_all()


def _do_nothing(message: Message | None = None) -> None:
    pass
