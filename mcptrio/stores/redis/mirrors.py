"""Mirrors: the streams that other processes write, as far as they are known here.

A mirror subscribes to the channel of its stream, then looks for the newest event. An event that is pushed next to the
last one stays in memory for a while; anything else only moves the end, and followers fetch what lies between. So a gap,
a reconnection and an event that is too large to be pushed are one case: nothing is lost, whatever the channel loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from mcptrio._struct import Entity
from mcptrio._wire.resp import Argument, Reply
from mcptrio.errors import Overloaded
from mcptrio.stores._backend import StreamRow
from mcptrio.stores._streams import Fetch, MemoryStream, StreamFollower, check_cursor
from mcptrio.stores.base import StreamKey
from mcptrio.stores.redis.backend import number
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from mcptrio.stores.redis.keys import Keys

TAIL_BYTES: Final = 64 * 1024
UNUSED_FOR: Final = 5.0


class Mirror(Entity):
    """The stream of another process."""

    stream: MemoryStream
    followers: int = 0
    used: float = 0.0

    def jump(self, seq: int) -> None:
        """Move the end to an event that is not in memory."""
        stream = self.stream
        if seq > stream.last:
            stream.tail.clear()
            stream.last = stream.visible = stream.tail_floor = seq
            stream.size = 0
            stream.wake()

    def push(self, seq: int, data: bytes) -> None:
        """Add an event that was pushed."""
        stream = self.stream
        if seq <= stream.last:
            return
        if seq > stream.last + 1:
            self.jump(seq - 1)
        stream.add(data)
        stream.visible = seq
        while stream.size > TAIL_BYTES and len(stream.tail) > 1:
            stream.size -= len(stream.tail.pop(0))
            stream.tail_floor += 1
        stream.wake()

    def end(self) -> None:
        if self.stream.ended is None:
            self.stream.ended = trio.current_time()
            self.stream.wake()


class MirrorFollower(StreamFollower):
    """A cursor on a mirror, which is kept as long as there is one."""

    mirror: Mirror | None = None

    def close(self) -> None:
        if self.mirror is not None:
            self.mirror.followers -= 1
            self.mirror.used = trio.current_time()
            self.mirror = None
        super().close()


class Mirrors:
    """The mirrors of one process.   Borrows: the connection. The store runs `serve`, and calls the `on_…` methods."""

    def __init__(self, connection: RedisConnection, keys: Keys, most: int) -> None:
        self._connection = connection
        self._keys = keys
        self._most = most
        self._by_key: dict[StreamKey, Mirror] = {}
        self._by_channel: dict[bytes, Mirror] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: StreamKey) -> Mirror | None:
        return self._by_key.get(key)

    async def prepare(self, key: StreamKey) -> None:
        """Make a mirror of a stream, if the server knows it.

        Raises:
            Overloaded: there are too many, or the server cannot be asked.
        """
        mirror = self._by_key.get(key)
        if mirror is None or mirror.stream.ended is not None:  # its session may have continued it elsewhere
            if len(self._by_key) >= self._most:
                raise Overloaded(f"{self._most} streams of other processes are followed, which is the limit")
            mirror = self._by_key[key] = self._by_channel[self._channel(key)] = Mirror(MemoryStream(key, 0))
        elif mirror.followers:
            return
        mirror.used = trio.current_time()
        try:
            replies = await self._connection.ask_all([("SUBSCRIBE", self._channel(key)), *self._look(key)])
        except BaseException:
            mirror.used = 0.0  # the next round removes it
            raise
        if not self._learn(mirror, replies[1:]):
            mirror.used = 0.0
            self._by_key.pop(key, None)

    def follow(self, mirror: Mirror, after: int, fetch: Fetch) -> StreamFollower:
        """Follow a mirror.

        Raises:
            UnknownCursor: that is not possible without a gap.
        """
        follower = MirrorFollower(check_cursor(mirror.stream, after), after, fetch)
        follower.mirror = mirror
        mirror.followers += 1
        return follower

    # -- the tasks

    async def serve(self) -> None:
        """Leave the streams that are not followed any more."""
        while True:
            await trio.sleep(UNUSED_FOR)
            now = trio.current_time()
            unused = {
                channel: mirror
                for channel, mirror in self._by_channel.items()
                if not mirror.followers and now - mirror.used >= UNUSED_FOR
            }
            for channel, mirror in unused.items():
                del self._by_channel[channel]
                if self._by_key.get(mirror.stream.key) is mirror:
                    del self._by_key[mirror.stream.key]
            # If one of them is followed again just now, its subscription is sent later than this.
            if unused and self._connection.connected:
                with suppress(StoreUnavailable):  # a new connection has no subscriptions
                    await self._connection.execute([("UNSUBSCRIBE", channel) for channel in unused])

    async def catch_up(self) -> None:
        """Subscribe again after a reconnection, and look for what was missed."""
        for key, mirror in list(self._by_key.items()):
            replies = await self._connection.execute([("SUBSCRIBE", self._channel(key)), *self._look(key)])
            if not self._learn(mirror, replies[1:]):
                mirror.end()

    def on_message(self, channel: bytes, message: bytes) -> None:
        """Handle a publication: number and kind of an event, and its data."""
        mirror = self._by_channel.get(channel)
        if mirror is None:
            return
        number, kind, data = message.split(b" ", 2)
        seq = int(number)
        if kind in (b"event", b"last"):
            mirror.push(seq, data)
        else:
            mirror.jump(seq)
        if kind not in (b"event", b"large-event"):
            mirror.end()

    async def look(self, key: StreamKey) -> StreamRow | None:
        """Return a stream as the server has it; None if nothing is stored of it.

        Raises:
            StoreUnavailable: the server cannot be asked.
        """
        oldest, newest, *_ = await self._connection.ask_all(self._look(key))
        if not newest:
            return None
        return StreamRow(key, 0, _floor(oldest[0]), number(newest[0][0]), 0)

    # -- the server

    def _channel(self, key: StreamKey) -> bytes:
        return f"{self._keys.news(key.session)}{key.stream}".encode()

    def _look(self, key: StreamKey) -> list[tuple[Argument, ...]]:
        """Return the commands that read the state of a stream."""
        session, _, stream = self._keys.of_stream(key)
        return [
            ("XRANGE", stream, "-", "+", "COUNT", 1),
            ("XREVRANGE", stream, "+", "-", "COUNT", 1),
            ("HEXISTS", self._keys.calls(key.session), key.stream),
            ("EXISTS", session),
        ]

    def _learn(self, mirror: Mirror, replies: list[Reply]) -> bool:
        """Apply what `_look` found; return False if there is no such stream."""
        oldest, newest, called, session = replies
        if not newest:
            # A call that has sent nothing yet, or a session whose own stream was not used yet.
            return bool(called or (session and mirror.stream.key.stream == "0"))
        if not mirror.stream.last:
            mirror.stream.floor = _floor(oldest[0])
        last, fields = newest[0]
        mirror.jump(number(last))
        if fields[-2] == b"l":
            mirror.end()
        return True


def _floor(oldest: Sequence[Any]) -> int:
    """Return the number before the oldest event, of the oldest entry of a stream."""
    id, fields = oldest
    return number(id) - 1 if fields[0] == b"d" else number(id)
