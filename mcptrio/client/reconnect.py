"""The connections of a client: opened for the first call, opened again after a loss, closed from any task.

`live` runs in a task of its own and owns every connection; callers only request one. A lost connection cancels no
caller: its pending requests fail with a typed error, and the next caller opens a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from attrs import define, field

from mcptrio._peer.era import Era
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.exceptions import unwrap
from mcptrio.client.handshake import MODERN, HandshakeResult, perform_handshake
from mcptrio.client.targets import older
from mcptrio.errors import ConnectionLost, LocalProtocolError, MCPError, MCPTrioError
from mcptrio.telemetry.log import escape
from mcptrio.transports.client import ClientTransport, NotDelivered
from mcptrio.transports.retry import RETRYABLE, Retries

logger = logging.getLogger("mcptrio.client")

_GOODBYE = 15.0


@define(eq=False, repr=False, kw_only=True)
class Connector:
    """The connections of one client.

    Owns: the connections, the task that calls the host's callbacks, and the task of the timeouts.
    Borrows: the service, the transport.
    """

    service: ClientService
    transport: ClientTransport
    on_notified: Callable[[str, dict[str, Any]], None]
    mirror: Callable[[str, Mapping[str, Any]], Mapping[str, str]]
    on_open: Callable[[Connection, bool], Awaitable[None]]
    """Called with each new connection, and whether it replaces an earlier one."""
    handshake: HandshakeResult | None = None
    _connection: Connection | None = None
    _opening: Connection | None = None
    """A connection during its handshake."""
    _starting: trio.CancelScope = field(factory=trio.CancelScope)
    """The scope around the start of its transport, which may take as long as a sign-in."""
    _nursery: trio.Nursery | None = None
    _lock: trio.Lock = field(factory=trio.Lock)
    _failure: MCPTrioError | None = None
    """The reason why the latest attempts to connect failed."""
    _failures: int = 0
    _closing: trio.Event = field(factory=trio.Event)
    _closed: trio.Event = field(factory=trio.Event)
    _host_scope: trio.CancelScope = field(factory=trio.CancelScope)

    # -- life cycle

    async def live(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._run_callbacks)
                self._nursery.start_soon(self.service.timeouts.keep_time)
                task_status.started()
                await self._closing.wait()
                self._host_scope.cancel()
                self.service.timeouts.stop()
                self._close_connections()
                self._nursery.cancel_scope.deadline = trio.current_time() + _GOODBYE
        finally:
            self._closing.set()
            self._closed.set()

    async def _run_callbacks(self) -> None:
        with self._host_scope:
            await self.service.callbacks.run()

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
        return self.handshake.era if self.handshake is not None else None

    @property
    def ready(self) -> Connection | None:
        """The open connection, if there is one."""
        connection = self._connection
        return connection if connection is not None and connection.alive else None

    async def connected(self) -> Connection:
        """Return the open connection, or open one.

        Raises:
            ConnectionLost: the client was closed, or the server cannot be reached.
            MCPTrioError: the handshake failed.
        """
        if (connection := self.ready) is not None:
            return connection
        failures = self._failures
        async with self._lock:
            if (connection := self.ready) is not None:
                return connection
            if self._failure is not None and failures != self._failures:
                raise self._failure  # from the attempts that this caller waited for
            try:
                return await (self._open() if self.handshake is None else self._open_again())
            except MCPTrioError as error:
                self._failure, self._failures = error, self._failures + 1
                raise

    async def _open_again(self) -> Connection:
        policy = self.service.config.reconnect
        if not policy.tries:
            raise ConnectionLost(f"the connection was lost: {self._why_lost()}")
        retries = Retries(policy, policy.tries - 1)
        while True:
            try:
                return await self._open()
            except RETRYABLE as error:
                if self.closed:
                    raise
                logger.info("the server cannot be reached: %s", escape(error, 1000))
                retries.failed(error)
                await retries.pause(error)

    def _why_lost(self) -> str:
        return self._connection.why if self._connection is not None else "never opened"

    async def _open(self) -> Connection:
        try:
            return await self._open_with(self.transport, self.era)
        except MCPTrioError as error:
            way = self._older_way(error)
            if way is None:
                raise
            transport, era = way
            try:
                connection = await self._open_with(transport, era)
            except MCPTrioError:
                raise error from None
            self.transport = transport
            return connection

    def _older_way(self, error: MCPTrioError) -> tuple[ClientTransport, Era | None] | None:
        """Return the transport and the revision to try next with a server that is not known yet."""
        if self.handshake is not None or (isinstance(error, MCPError) and error.code in MODERN):
            return None
        if (transport := older(self.transport, error)) is not None:
            return transport, None
        # Some servers exit when their first message is not `initialize`: start another one and begin with that.
        exited = isinstance(error, ConnectionLost) and not isinstance(error, NotDelivered)
        era = self.service.eras.newest_stateful
        if self.transport.name == "stdio" and exited and era is not None and not self.closed:
            return self.transport, era
        return None

    async def _open_with(self, transport: ClientTransport, era: Era | None) -> Connection:
        if self.closed:
            raise ConnectionLost("the client is closed")
        if self._nursery is None:
            raise LocalProtocolError("the client is not open: use `async with`")
        # This task and `live` are cancelled together: never start a task in a nursery that is closed.
        await trio.lowlevel.checkpoint_if_cancelled()
        connection = Connection(
            service=self.service, transport=transport, on_notified=self.on_notified, mirror=self.mirror
        )
        again = self.handshake is not None
        self._opening = connection
        try:
            with trio.CancelScope() as self._starting:
                await self._nursery.start(self._guard, connection)
            if self._starting.cancelled_caught:
                raise ConnectionLost("the client was closed")
            self.handshake = await perform_handshake(connection, era)
            await self.on_open(connection, again)
        except BaseException:
            connection.close()
            raise
        finally:
            self._opening = None
        self._connection = connection
        return connection

    async def _guard(self, connection: Connection, *, task_status: trio.TaskStatus[None]) -> None:
        """Contain the crash of a connection; before it is open, raise it in the task that opens it."""
        try:
            await connection.run(task_status=task_status)
        except Exception as error:
            if not connection.started:
                raise unwrap(error) from None
            logger.error("the connection to the server failed", exc_info=error)
            connection.lost(f"the connection failed: {type(error).__name__}")
