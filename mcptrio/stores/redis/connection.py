"""One pipelined connection to Redis or Valkey, opened again whenever it is lost.

Theory of operation. Callers append commands to one buffer and wait; a writer sends what is there, a reader settles the
waiting callers in order. Every command has exactly one reply, also a SUBSCRIBE, whose reply is a push. A caller that is
cancelled leaves its place in the queue, so that its reply cannot be taken for the next one. No command blocks in the
server, so one connection is enough.

Everything is bounded: unsent bytes, waiting commands, the time to connect, the time of a silent connection. While the
server is known to be down, commands fail at once.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from msgspec import field

from mcptrio._actors.future import Reply as Future
from mcptrio._actors.future import Waiter
from mcptrio._struct import Entity
from mcptrio._wire.resp import Argument, Push, Reply, RespParser, ServerError, pack
from mcptrio.errors import Overloaded, RemoteProtocolError
from mcptrio.stores._streams import open_tasks
from mcptrio.stores.base import StoreFailed
from mcptrio.stores.redis.address import RedisAddress

logger = logging.getLogger(__name__)

MIN_VERSION: Final = (6, 2)
MAX_UNSENT: Final = 16 * 2**20
MAX_AWAITED: Final = 16_384
CHUNK: Final = 64 * 1024
CONNECT_WITHIN: Final = 2.0
ASK_WITHIN: Final = 1.0
"""Seconds in which a command on the path of a request is answered, or the request is refused."""
SLOW_AFTER: Final = 5
"""Deadlines missed in a row after which commands on the path of a request are refused at once, for `SLOW_FOR` s."""
SLOW_FOR: Final = 1.0
CHECK_EVERY: Final = 5.0
SILENT: Final = 10.0
"""Seconds without a byte while a reply is due, after which the connection counts as lost."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0

_LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError)


REPLICAS: Final = (b"replica", b"slave")
_ADVICE: Final = {
    "READONLY": "a read-only replica cannot be written: name the primary, or use redis+sentinel://",
    "OOM": "its memory is full: raise its maxmemory, or remove data",
    "NOPERM": "the user lacks rights: the how-to page on Redis lists those that it needs",
    "DB index": "the URL names a database that the server does not have: raise its setting databases, or leave it out",
    "CERTIFICATE_VERIFY": "name the authority of its certificate (?ca=FILE), and the host as the certificate does",
}
"""Codes and words in errors -> how to repair what causes them."""


def advice(text: str) -> str:
    """Return how to repair what an error is about, to be appended to it; empty if that is not known."""
    return next((f" ({found})" for word, found in _ADVICE.items() if word in text), "")


class StoreUnavailable(Overloaded):
    """The Redis server cannot be reached or is too slow; the request may be repeated soon.

    The text is sent to clients, which learn nothing about the server; `reason` is for logs.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("the store is not available", retry_after=1, limit="store")
        self.reason = reason


class Awaited(Entity):
    """The place of one caller in the queue: so many replies are still to come."""

    left: int
    replies: list[Reply] = field(default_factory=list)
    done: Future = field(default_factory=Future)


class RedisConnection:
    """The connection of a store.

    Owns: the socket, and while it is open the tasks that write, read and reconnect.   Borrows: `on_message`, which gets
    channel and data of each publication, and `on_connected`, called after each successful connection.
    """

    def __init__(
        self,
        address: RedisAddress,
        *,
        scripts: Mapping[str, str] | None = None,
        on_message: Callable[[bytes, bytes], None] = lambda channel, data: None,
        on_connected: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self.address = address
        self.problem = "not connected yet"
        self.role = b""
        """The role of the server: master or replica."""
        self.on_roundtrip: Callable[[float], None] | None = None
        """Called with the seconds that each group of commands took."""
        self._scripts = scripts or {}  # by hash
        self._on_message = on_message
        self._on_connected = on_connected
        self._stream: trio.abc.Stream | None = None
        self._parser = RespParser()
        self._unsent = bytearray()
        self._awaited: deque[Awaited] = deque()
        self._due = 0  # replies that are still to come
        self._writer = Waiter()
        self._failures = 0  # to connect, in a row
        self._connecting = trio.lowlevel.ParkingLot()
        self._heard = 0.0
        self._missed = 0  # deadlines in a row
        self._slow_until = 0.0
        self._serving: trio.CancelScope | None = None

    @property
    def connected(self) -> bool:
        return self._stream is not None

    # -- for callers

    async def execute(self, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
        """Send commands in one piece and return their replies; an error of the server is a value among them.

        Raises:
            StoreUnavailable: there is no connection, it was lost before the last reply, or too much is waiting.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._stream is None:
            if self._failures:
                raise StoreUnavailable(self.problem)
            await self._connecting.park()
        began = time.perf_counter()
        replies: list[Reply] = await self._enqueue(commands).done.wait()
        if self.on_roundtrip is not None:
            self.on_roundtrip(time.perf_counter() - began)
        unknown = [
            at for at, reply in enumerate(replies) if isinstance(reply, ServerError) and reply.code == "NOSCRIPT"
        ]
        if unknown:  # the scripts were removed since the connection began: send them in full
            again = [("EVAL", self._scripts[str(commands[at][1])], *commands[at][2:]) for at in unknown]
            for at, reply in zip(unknown, await self.execute(again), strict=True):
                replies[at] = reply
        return replies

    async def ask(self, *command: Argument) -> Reply:
        """Send one command on the path of a request and return its reply, see `ask_all`."""
        (reply,) = await self.ask_all([command])
        return reply

    async def ask_all(self, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
        """Send commands on the path of a request and return their replies.

        Raises:
            StoreUnavailable: no reply in time, or an error of the server.
        """
        if trio.current_time() < self._slow_until:
            raise StoreUnavailable(f"{self.address} is slow")
        try:
            with trio.fail_after(ASK_WITHIN):
                replies = await self.execute(commands)
        except trio.TooSlowError:
            self._missed += 1
            if self._missed >= SLOW_AFTER:
                self._slow_until = trio.current_time() + SLOW_FOR
            raise StoreUnavailable(f"{self.address} did not answer within {ASK_WITHIN:g} s") from None
        self._missed = 0
        for reply in replies:
            if isinstance(reply, ServerError):
                raise StoreUnavailable(f"{self.address}: {reply}")
        return replies

    def _enqueue(self, commands: Sequence[tuple[Argument, ...]]) -> Awaited:
        data = pack(commands)
        # One large group is sent although it exceeds the bound, as long as nothing else waits.
        if (self._unsent and len(self._unsent) + len(data) > MAX_UNSENT) or self._due > MAX_AWAITED:
            raise StoreUnavailable(f"{self.address} does not keep up: {self._due} commands wait")
        awaited = Awaited(len(commands))
        self._awaited.append(awaited)
        self._due += len(commands)
        self._unsent += data
        self._writer.wake()
        return awaited

    # -- connecting

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect, and stay connected during the block.

        The tasks are not cancelled from outside but at the end of the block, which may still have to write.

        Raises:
            StoreFailed: the server cannot be used.
        """
        self._failures = 0
        await self._connect()
        scope = trio.CancelScope(shield=True)

        async def live() -> None:
            with scope:
                await self._run()

        async with open_tasks(live):
            try:
                yield
            finally:
                scope.cancel()

    async def _run(self) -> None:
        try:
            while True:
                if self._stream is not None:
                    await self._serve(self._stream)
                pause = min(FIRST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)
                await trio.sleep(random.uniform(pause / 2, pause))
                try:
                    await self._connect()
                except StoreFailed as error:
                    self._failures += 1
                    self.problem = str(error)
                    self._connecting.unpark_all()
        finally:
            self._disconnected()

    async def _connect(self) -> None:
        stream: trio.abc.Stream | None = None
        try:
            with trio.fail_after(CONNECT_WITHIN):
                stream = await self.address.dial()
                self._parser = RespParser()
                await self._log_in(stream)
        except BaseException as error:
            if stream is not None:
                await trio.aclose_forcefully(stream)
            if isinstance(error, trio.TooSlowError):
                tls = "" if self.address.tls is None else " (does it use TLS at this port?)"
                raise StoreFailed(f"no answer from the Redis server {self.address}{tls}") from None
            if isinstance(error, _LOST):
                why = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error  # TLS: the cause
                text = str(why) or type(error).__name__
                how = advice(text) or self._how_to_reach(stream is not None)
                raise StoreFailed(f"cannot reach the Redis server {self.address}: {text}{how}") from error
            raise
        self._stream, self._failures, self._heard = stream, 0, time.monotonic()
        self._connecting.unpark_all()

    def _how_to_reach(self, connected: bool) -> str:
        if not connected:
            return " (start it, or correct the address in the URL of the store)"
        return " (if it uses TLS at this port, write rediss://)" if self.address.tls is None else ""

    async def _log_in(self, stream: trio.abc.Stream) -> None:
        address = self.address
        login = () if address.password is None else ("AUTH", address.username, address.password)
        commands: list[tuple[Argument, ...]] = [("HELLO", "3", *login, "SETNAME", "mcptrio")]
        if address.db:
            commands.append(("SELECT", address.db))
        commands += [("SCRIPT", "LOAD", script) for script in self._scripts.values()]
        await stream.send_all(pack(commands))
        replies: list[Reply] = []
        while len(replies) < len(commands):
            data = await stream.receive_some(CHUNK)
            if not data:
                raise OSError("the server closed the connection")
            replies += self._parser.feed(data)
        self.role = _check_hello(replies[0], address)
        for reply in replies[1:]:
            if isinstance(reply, ServerError):
                raise StoreFailed(f"the Redis server {address} refused to be used: {reply}{advice(str(reply))}")

    # -- while connected

    async def _serve(self, stream: trio.abc.Stream) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._serving = nursery.cancel_scope
                nursery.start_soon(self._write, stream)
                nursery.start_soon(self._read, stream)
                nursery.start_soon(self._watch)
                nursery.start_soon(self._on_connected)
        finally:
            self._serving = None
            self._disconnected()
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    def lose(self, reason: str) -> None:
        """Give up the present connection and open another one."""
        if self._serving is not None and not self._serving.cancel_called:
            self.problem = f"the connection to {self.address} was lost: {reason}"
            logger.warning("%s", self.problem)
            self._serving.cancel()

    def _disconnected(self) -> None:
        self._stream = None
        self._unsent.clear()
        self._due = 0
        awaited, self._awaited = self._awaited, deque()
        for each in awaited:
            each.done.settle(error=StoreUnavailable(self.problem))

    async def _write(self, stream: trio.abc.Stream) -> None:
        try:
            while True:
                if self._unsent:
                    data, self._unsent = self._unsent, bytearray()
                    await stream.send_all(data)
                else:
                    await self._writer.park()
        except _LOST as error:
            self.lose(str(error) or "broken")

    async def _read(self, stream: trio.abc.Stream) -> None:
        try:
            while data := await stream.receive_some(CHUNK):
                self._heard = time.monotonic()
                for reply in self._parser.feed(data):
                    self._settle(reply)
            self.lose("closed by the server")
        except _LOST as error:
            self.lose(str(error) or "broken")

    def _settle(self, reply: Any) -> None:
        if type(reply) is Push:
            if reply[0] == b"message":
                self._on_message(reply[1], reply[2])
                return
            if reply[0] not in (b"subscribe", b"unsubscribe"):
                return
        if not self._awaited:
            self.lose("a reply to no command")
            return
        if isinstance(reply, ServerError) and "READONLY" in str(reply):
            self.lose("the server is a read-only replica")  # another one may be the primary now
        awaited = self._awaited[0]
        awaited.replies.append(reply)
        awaited.left -= 1
        self._due -= 1
        if not awaited.left:
            self._awaited.popleft()
            awaited.done.settle(awaited.replies)

    async def _watch(self) -> None:
        """Notice a server that is silent, also while nothing is asked of it."""
        while True:
            await trio.sleep(CHECK_EVERY)
            if not self._awaited:
                self._enqueue([("PING",)])
            elif time.monotonic() - self._heard > SILENT:  # real time, also under a mock clock
                self.lose(f"no reply for {SILENT:g} s")


def _check_hello(reply: Reply, address: RedisAddress) -> bytes:
    """Check whether the server can be used; return its role."""
    if isinstance(reply, ServerError):
        if reply.code in ("WRONGPASS", "NOAUTH") or "AUTH" in str(reply):
            check = "check name and password"
            if address.password is None:
                check += "; there is none: name a file with it in MCPTRIO_STORE_PASSWORD_FILE, or pass password="
            raise StoreFailed(f"the Redis server {address} refused user {address.username!r}: {check}")
        if "unknown command" in str(reply):
            raise StoreFailed(f"the Redis server {address} is too old: 6.2 or later is needed")
        raise StoreFailed(f"the Redis server {address} refused to be used: {reply}{advice(str(reply))}")
    hello: dict[bytes, Any] = reply if isinstance(reply, dict) else {}
    version = hello.get(b"version", b"0").decode("ascii", "replace")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < MIN_VERSION:
        raise StoreFailed(f"the Redis server {address} has version {version}: 6.2 or later is needed")
    role: bytes = hello.get(b"role", b"")
    return role
