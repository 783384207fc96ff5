"""Keeping a connection: opened when somebody needs it, opened again when it was lost, closed from anywhere.

Theory of operation. `live` runs in a task of its own and owns every connection; callers only ask for one. Nobody is
cancelled because a connection is gone: what waits on it fails with a typed error, and who asks next gets a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from attrs import define, field

from mcptrio._peer.era import Era
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.opening import MODERN, Introduction, introduce
from mcptrio.client.plain import plain
from mcptrio.client.targets import older
from mcptrio.errors import LinkClosed, LocalProtocolError, McpError, MCPTrioException, Overloaded, RequestTimeout
from mcptrio.transports.carrier import Carrier

logger = logging.getLogger("mcptrio.client")

_GOODBYE = 15.0


@define(eq=False, repr=False, kw_only=True)
class Keeper:
    """Owns: the connections, the task that tells the host's callbacks, and the one that keeps the requests' time.

    Lent: the service, the carrier.
    """

    service: ClientService
    carrier: Carrier
    on_told: Callable[[str, dict[str, Any]], None]
    mirror: Callable[[str, Mapping[str, Any]], Mapping[str, str]]
    on_open: Callable[[Connection, bool], Awaitable[None]]
    """Called with each new connection, and whether it is not the first."""
    introduction: Introduction | None = None
    opened: int = 0
    """How many connections there have been."""
    _connection: Connection | None = None
    _opening: Connection | None = None
    """One that is not ready to be used yet."""
    _starting: trio.CancelScope = field(factory=trio.CancelScope)
    """Around the carrier's work on that one, which may take as long as a person takes to sign in."""
    _nursery: trio.Nursery | None = None
    _lock: trio.Lock = field(factory=trio.Lock)
    _closing: trio.Event = field(factory=trio.Event)
    _closed: trio.Event = field(factory=trio.Event)
    _host_scope: trio.CancelScope = field(factory=trio.CancelScope)

    # -- its life

    async def live(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._tell_host)
                self._nursery.start_soon(self.service.patience.keep_time)
                task_status.started()
                await self._closing.wait()
                self._host_scope.cancel()
                self.service.patience.stop()
                self._close_connections()
                self._nursery.cancel_scope.deadline = trio.current_time() + _GOODBYE
        finally:
            self._closing.set()
            self._closed.set()

    async def _tell_host(self) -> None:
        with self._host_scope:
            await self.service.host.run()

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    def close_nowait(self) -> None:
        self._closing.set()
        self._close_connections()

    def _close_connections(self) -> None:
        for connection in (self._connection, self._opening):
            if connection is not None:
                connection.close()
        self._starting.cancel()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    # -- connections

    @property
    def era(self) -> Era | None:
        return self.introduction.era if self.introduction is not None else None

    @property
    def ready(self) -> Connection | None:
        """The open connection, if there is one."""
        connection = self._connection
        return connection if connection is not None and connection.alive else None

    async def connected(self) -> Connection:
        """An open connection: the one there is, or a new one.

        Raises:
            LinkClosed: the client was closed, or the server cannot be reached.
            MCPTrioException: it can, but not be talked to.
        """
        if (connection := self.ready) is not None:
            return connection
        async with self._lock:
            if (connection := self.ready) is not None:
                return connection
            if self.introduction is None:
                return await self._open()
            return await self._open_again()

    async def _open_again(self) -> Connection:
        policy = self.service.config.reconnect
        lost: MCPTrioException = LinkClosed(f"the connection was lost: {self._why_lost()}")
        for attempt in range(policy.tries):
            await trio.sleep(policy.pause(attempt))
            try:
                return await self._open()
            except (LinkClosed, Overloaded, RequestTimeout) as error:
                if self.closed:
                    raise
                logger.info("the server cannot be reached (attempt %d): %s", attempt + 1, error)
                lost = error
        raise lost

    def _why_lost(self) -> str:
        return self._connection.why if self._connection is not None else "never opened"

    async def _open(self) -> Connection:
        try:
            return await self._open_with(self.carrier)
        except MCPTrioException as error:
            known = self.introduction is not None or (isinstance(error, McpError) and error.code in MODERN)
            carrier = None if known else older(self.carrier, error)
            if carrier is None:
                raise
            try:
                connection = await self._open_with(carrier)
            except MCPTrioException:
                raise error from None
            self.carrier = carrier
            return connection

    async def _open_with(self, carrier: Carrier) -> Connection:
        if self.closed:
            raise LinkClosed("the client is closed")
        if self._nursery is None:
            raise LocalProtocolError("the client is not open: use `async with`")
        connection = Connection(service=self.service, carrier=carrier, on_told=self.on_told, mirror=self.mirror)
        again = self.introduction is not None
        self._opening = connection
        try:
            with trio.CancelScope() as self._starting:
                await self._nursery.start(self._guard, connection)
            if self._starting.cancelled_caught:
                raise LinkClosed("the client was closed")
            self.introduction = await introduce(connection, self.era)
            await self.on_open(connection, again)
        except BaseException:
            connection.close()
            raise
        finally:
            self._opening = None
        self._connection = connection
        self.opened += 1
        return connection

    async def _guard(self, connection: Connection, *, task_status: trio.TaskStatus[None]) -> None:
        """A connection's crash stops here; before it is open, it is the opener's."""
        try:
            await connection.run(task_status=task_status)
        except Exception as error:
            if not connection.started:
                raise plain(error) from None
            logger.error("the connection to the server failed", exc_info=error)
            connection.lost(f"the connection failed: {type(error).__name__}")
