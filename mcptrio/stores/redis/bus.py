"""The bus between processes: callbacks here at once, those of other processes through a channel of each topic.

A channel loses what is published while a subscriber is not connected. So each topic has a version, kept together with
its last message: after a reconnection the versions show which topics have changed, and their callbacks get that last
message. Several changes in between become one, which is enough: a change means "read again". A new subscriber gets the
last message too if it was published a moment before, because the subscriber may have read just before that.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import trio

from mcptrio._actors.future import Waiter
from mcptrio._struct import Entity
from mcptrio._wire.resp import Argument, ServerError
from mcptrio.stores.base import Subscription
from mcptrio.stores.memory import MemoryBus
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from mcptrio.stores.redis.keys import Keys

logger = logging.getLogger(__name__)

VERSION_MS: Final = 86_400_000
MAX_UNSENT: Final = 10_000
"""Topics with a change that was not published yet; the oldest are dropped."""
AT_ONCE: Final = 256
RECENT: Final = 2.0
"""Seconds before a subscription in which a change is delivered to it as well."""
RETRY_AFTER: Final = 0.1
SETTLED_WITHIN: Final = 1.0
COUNTED: Final = b". "
"""Begins, in place of a sender, a message that changes the version of a topic and is for no other process."""


class SharedSubscription(Entity):
    """A callback on the bus of several processes."""

    _local: Subscription
    _close: Callable[[], None]

    def close(self) -> None:
        self._local.close()
        self._close()


class RedisBus:
    """The bus of one endpoint.   Borrows: the connection. The store runs `serve`, and calls the `on_…` methods."""

    def __init__(self, connection: RedisConnection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._local = MemoryBus()
        self._sender = secrets.token_urlsafe(9).encode()
        self._changed: dict[str, float] = {}  # topics that may have to be subscribed to or left; since when
        self._versions: dict[str, int] = {}  # of topics that the server knows of; the newest one heard of
        self._before: dict[str, int] = {}  # the same, of the lost connection
        self._unsent: dict[str, bytes] = {}  # the newest message of each topic
        self._work = Waiter()
        self._settling = trio.lowlevel.ParkingLot()

    # -- the protocol

    def publish(self, topic: str, payload: Any = None, *, everywhere: bool = True) -> None:
        self._local.publish(topic, payload)
        message = msgspec.json.encode(payload)
        if everywhere:
            self._unsent.pop(topic, None)
            self._unsent[topic] = self._sender + b" " + message
        else:
            self._unsent.setdefault(topic, COUNTED + message)
        if len(self._unsent) > MAX_UNSENT:
            oldest = next(iter(self._unsent))
            del self._unsent[oldest]
            logger.error("a change of %s reaches no other process: too many wait for the Redis server", oldest)
        self._work.wake()

    def subscribe(self, topics: Iterable[str], callback: Callable[[str, Any], None]) -> Subscription:
        chosen = tuple(topics)
        local = self._local.subscribe(chosen, callback)
        self._check(chosen)
        return SharedSubscription(local, lambda: self._check(chosen))

    async def versions(self, topics: Iterable[str]) -> dict[str, str]:
        chosen = tuple(topics)
        if not chosen:
            await trio.lowlevel.checkpoint()
            return {}
        try:
            found = await self._connection.ask("MGET", *map(self._keys.version, chosen))
        except StoreUnavailable:
            return {}
        return {
            topic: f"redis:{0 if message is None else _version(message)}"
            for topic, message in zip(chosen, found, strict=True)
        }

    async def settled(self) -> None:
        with trio.move_on_after(SETTLED_WITHIN):
            while self._changed and self._connection.connected:
                await self._settling.park()

    def _check(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if (topic in self._local) != (topic in self._versions):
                self._changed.setdefault(topic, time.monotonic())
        self._work.wake()

    # -- the task that talks to the server

    async def serve(self) -> None:
        """Subscribe to the topics that have callbacks, leave the others, and publish changes."""
        while True:
            try:
                if self._changed:
                    await self._subscribe()
                elif self._unsent:
                    await self._send()
                else:
                    await self._work.park()
            except StoreUnavailable:
                await trio.sleep(RETRY_AFTER)

    async def send_rest(self) -> None:
        """Publish what still waits when the store is closed."""
        try:
            while self._unsent:
                await self._send()
        except StoreUnavailable as error:
            logger.warning("the last changes reach no other process: %s", error.reason)

    async def _send(self) -> None:
        sent = dict(list(self._unsent.items())[:AT_ONCE])
        self._unsent = {topic: message for topic, message in self._unsent.items() if topic not in sent}
        keys = self._keys
        try:
            replies = await self._connection.execute(
                [
                    scripts.PUBLISH.command((keys.version(topic),), keys.channel(topic), message, VERSION_MS)
                    for topic, message in sent.items()
                ]
            )
        except BaseException:
            self._keep(sent)  # it may have been published: a repetition does no harm
            raise
        failed = next((reply for reply in replies if isinstance(reply, ServerError)), None)
        if failed is not None:
            self._keep(sent)
            raise StoreUnavailable(str(failed))

    def _keep(self, sent: dict[str, bytes]) -> None:
        """Put messages back that may not have arrived; of each topic, the newest one for the others is kept."""
        newer = {topic: m for topic, m in self._unsent.items() if not (topic in sent and m.startswith(COUNTED))}
        self._unsent = sent | newer

    async def _subscribe(self) -> None:
        some = list(self._changed)[:AT_ONCE]
        new = [topic for topic in some if topic in self._local and topic not in self._versions]
        old = [topic for topic in some if topic not in self._local and topic in self._versions]
        commands: list[tuple[Argument, ...]] = [("UNSUBSCRIBE", self._keys.channel(topic)) for topic in old]
        commands += [("SUBSCRIBE", self._keys.channel(topic)) for topic in new]
        for topic in new:
            commands += [("GET", self._keys.version(topic)), ("PTTL", self._keys.version(topic))]
        for topic in old:
            del self._versions[topic]
        self._versions.update(dict.fromkeys(new, 0))
        replies = await self._connection.execute(commands) if commands else []
        failed = next((reply for reply in replies if isinstance(reply, ServerError)), None)
        if failed is not None:
            for topic in new:
                self._versions.pop(topic, None)
            raise StoreUnavailable(str(failed))
        since = {topic: self._changed.pop(topic, 0.0) for topic in some}
        self._check(some)  # what has changed meanwhile
        last = replies[len(replies) - 2 * len(new) :]
        for topic, message, left in zip(new, last[::2], last[1::2], strict=True):
            if message is not None:
                age = (VERSION_MS - left) / 1000
                self._catch_up(topic, message, recent=age < time.monotonic() - since[topic] + RECENT)
        if not self._changed:
            self._settling.unpark_all()

    def _catch_up(self, topic: str, message: bytes, *, recent: bool) -> None:
        """Deliver the last message of a topic if it was published while there was no subscription."""
        before = self._before.pop(topic, None)
        version = _version(message)
        if self._versions.get(topic) != 0:  # a later one has been pushed already, or it was left
            return
        self._versions[topic] = version
        if recent if before is None else version != before:
            self._deliver(topic, message)

    def on_connected(self) -> None:
        """Subscribe again: a new connection has no subscriptions."""
        self._before |= self._versions
        self._before = {topic: version for topic, version in self._before.items() if topic in self._local}
        self._versions.clear()
        self._changed = {topic: self._changed.get(topic, time.monotonic()) for topic in self._local}
        self._work.wake()
        self._settling.unpark_all()

    def on_message(self, channel: bytes, message: bytes) -> None:
        """Handle a publication."""
        topic = self._keys.topic(channel)
        if topic in self._versions:
            self._versions[topic] = _version(message)
            # The local callbacks of a message were called when it was published.
            if message.split(b" ", 2)[1] not in (self._sender, COUNTED.strip()):
                self._deliver(topic, message)

    def _deliver(self, topic: str, message: bytes) -> None:
        self._local.publish(topic, msgspec.json.decode(message.split(b" ", 2)[2]))


def _version(message: bytes) -> int:
    return int(message.partition(b" ")[0])
