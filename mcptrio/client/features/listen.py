"""Open `listen` blocks: each one subscribes again on every new connection."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio
from attrs import define, field

from mcptrio.client.connection import LISTEN, ClientService, Connection
from mcptrio.client.exceptions import open_unwrapped_nursery
from mcptrio.client.features.subscriptions import Changes
from mcptrio.client.handshake import request_meta
from mcptrio.client.reconnect import Connector
from mcptrio.client.timeouts import TimedReply
from mcptrio.errors import ConnectionLost, MCPTrioError, RequestTimeout
from mcptrio.transports.retry import RETRYABLE, Retries

_markers: Final = itertools.count(1)


@define(eq=False, repr=False, kw_only=True)
class Listeners:
    """The open `listen` blocks and the subscriptions of a client. Borrows: the connector."""

    service: ClientService
    connector: Connector
    _subscribed: Counter[str] = field(factory=Counter)
    """Resource -> number of `subscribe` calls for it, at the stateful revisions; `listen` blocks are not counted."""
    _listeners: set[Changes] = field(factory=set)

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        era = self.connector.era
        for changes in tuple(self._listeners):
            changes.on_notification(method, params, stateful=era is None or era.stateful)

    async def on_open(self, connection: Connection) -> None:
        """Subscribe again in a new session; `listen` blocks do so themselves."""
        for uri in sorted(self._subscribed):
            if not self._is_listened_to(uri):
                await connection.restore("resources/subscribe", {"uri": uri})

    def subscribe(self, uri: str) -> None:
        """Count a subscription that the server has accepted."""
        self._subscribed[uri] += 1

    def unsubscribe(self, uri: str) -> bool:
        """Remove one subscription; return whether to unsubscribe at the server, because nothing else needs it."""
        if self._subscribed[uri] > 1:
            self._subscribed[uri] -= 1
        else:
            del self._subscribed[uri]
        return not self._is_wanted(uri)

    def _is_listened_to(self, uri: str, without: Changes | None = None) -> bool:
        return any(uri in changes.uris for changes in self._listeners if changes is not without)

    def _is_wanted(self, uri: str, without: Changes | None = None) -> bool:
        return uri in self._subscribed or self._is_listened_to(uri, without)

    @asynccontextmanager
    async def open(self, changes: Changes) -> AsyncIterator[Changes]:
        """Deliver changes until the block is left."""
        async with open_unwrapped_nursery() as nursery:
            self._listeners.add(changes)
            nursery.start_soon(self._keep, changes)
            try:
                await self._await_acknowledgement(changes)
                yield changes
            finally:
                self._listeners.discard(changes)
                nursery.cancel_scope.cancel()

    async def _await_acknowledgement(self, changes: Changes) -> None:
        with trio.move_on_after(self.service.config.timeout):
            await changes.acknowledged.wait()
            changes.raise_if_refused()
            return
        raise RequestTimeout(f"{LISTEN} was not acknowledged in time")

    async def _keep(self, changes: Changes) -> None:
        retries = Retries(self.service.config.reconnect)
        again = False
        try:
            while True:
                connection = await self.connector.connected()
                began = trio.current_time()
                changes.answered, changes.interrupted = False, again
                again = True
                failed: MCPTrioError | None = None
                try:
                    if connection.era is not None and connection.era.stateful:
                        await self._in_session(connection, changes)
                    else:
                        await self._by_request(connection, changes)
                except RETRYABLE as error:
                    failed = error
                if self.connector.closed or not retries.limit:
                    changes.end(failed)
                    return
                good = retries.answered(trio.current_time() - began, delivered=changes.answered)
                if failed is not None or not good:
                    retries.failed(failed or ConnectionLost("the server ended the subscription at once"))
                await retries.pause(failed)
        except MCPTrioError as error:
            changes.end(error)

    async def _in_session(self, connection: Connection, changes: Changes) -> None:
        subscribed: set[str] = set()
        try:
            for uri in sorted(changes.uris):
                params = {"uri": uri}
                if not changes.acknowledged.is_set():
                    await connection.ask("resources/subscribe", params)
                elif not await connection.restore("resources/subscribe", params):
                    continue  # a listener that is under way goes on without a resource that is gone
                subscribed.add(uri)
            changes.honour(changes.kinds, frozenset(subscribed))
            await connection.wait_over()
        finally:
            if connection.alive:
                with trio.move_on_after(1, shield=True), suppress(MCPTrioError):
                    for uri in sorted(subscribed):
                        if not self._is_wanted(uri, without=changes):
                            await connection.ask("resources/unsubscribe", {"uri": uri})

    async def _by_request(self, connection: Connection, changes: Changes) -> None:
        assert connection.era is not None
        # Notifications carry the id of the request; the link reports it once it is chosen.
        marker = f"listen-{next(_markers)}"
        params = {
            "notifications": changes.filter,
            "_meta": {**request_meta(connection, connection.era), "progressToken": marker},
        }
        with trio.CancelScope() as scope:

            def found(request_id: int | str) -> None:
                changes.subscription = request_id
                connection.on_server_cancel(request_id, scope.cancel)

            connection.expect_listen(marker, found)
            changes.waits = TimedReply(method=LISTEN, idle=self.service.config.timeout)
            try:
                await connection.ask(LISTEN, params, wait=changes.waits)
            finally:
                connection.forget_listen(marker, changes.subscription)
                changes.subscription = changes.waits = None
