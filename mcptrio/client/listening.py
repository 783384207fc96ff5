"""Listening for changes, for as long as somebody does: again on every new connection, in the form that its date has."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio
from attrs import define, field

from mcptrio.client.connection import LISTEN, ClientService, Connection
from mcptrio.client.features.subscriptions import Changes
from mcptrio.client.healing import Keeper
from mcptrio.client.opening import request_meta
from mcptrio.client.plain import open_plain_nursery
from mcptrio.errors import LinkClosed, MCPTrioException, RequestTimeout

_LASTED: Final = 10.0
_markers: Final = itertools.count(1)


@define(eq=False, repr=False, kw_only=True)
class Listening:
    """Who listens to what. Lent: the keeper of the connection."""

    service: ClientService
    keeper: Keeper
    subscribed: Counter[str] = field(factory=Counter)
    """Resource -> how many want to be told of it, in the stateful life."""
    _listeners: set[Changes] = field(factory=set)

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        era = self.keeper.era
        for changes in tuple(self._listeners):
            changes.on_notification(method, params, stateful=era is None or era.stateful)

    async def on_open(self, connection: Connection) -> None:
        """Tell a new session what an older one knew; listeners do so themselves."""
        listened = frozenset[str]().union(*(changes.uris for changes in self._listeners))
        for uri in sorted(set(self.subscribed) - listened):
            await connection.ask("resources/subscribe", {"uri": uri})

    @asynccontextmanager
    async def open(self, changes: Changes) -> AsyncIterator[Changes]:
        """Keep `changes` told until the block is left."""
        self._listeners.add(changes)
        try:
            async with open_plain_nursery() as nursery:
                nursery.start_soon(self._keep, changes)
                try:
                    await self._await_acknowledgement(changes)
                    yield changes
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            self._listeners.discard(changes)

    async def _await_acknowledgement(self, changes: Changes) -> None:
        with trio.move_on_after(self.service.config.timeout):
            await changes.acknowledged.wait()
            changes.raise_if_refused()
            return
        raise RequestTimeout(f"{LISTEN} was not acknowledged in time")

    async def _keep(self, changes: Changes) -> None:
        policy = self.service.config.reconnect
        attempt, again = 0, False
        while True:
            began = trio.current_time()
            failed: MCPTrioException | None = None
            try:
                connection = await self.keeper.connected()
                if again:
                    changes.put_everything()
                again = True
                if connection.era is not None and connection.era.stateful:
                    await self._in_session(connection, changes)
                else:
                    await self._by_request(connection, changes)
            except (LinkClosed, RequestTimeout) as error:
                failed = error
            except MCPTrioException as error:
                changes.end(error)
                return
            attempt = 1 if trio.current_time() - began > _LASTED else attempt + 1
            if attempt > policy.tries or self.keeper.closed:
                changes.end(failed)
                return
            await trio.sleep(policy.pause(attempt))

    async def _in_session(self, connection: Connection, changes: Changes) -> None:
        for uri in sorted(changes.uris):
            await connection.ask("resources/subscribe", {"uri": uri})
        self.subscribed.update(changes.uris)
        changes.honour_all()
        try:
            await connection.wait_over()
        finally:
            self.subscribed.subtract(changes.uris)
            gone = [uri for uri in sorted(changes.uris) if self.subscribed[uri] <= 0]
            for uri in gone:
                del self.subscribed[uri]
            if connection.alive:
                with trio.move_on_after(1, shield=True), suppress(MCPTrioException):
                    for uri in gone:
                        await connection.ask("resources/unsubscribe", {"uri": uri})

    async def _by_request(self, connection: Connection, changes: Changes) -> None:
        assert connection.era is not None
        # The id of the request is what its notifications are known by; the link tells it when it has been chosen.
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
            try:
                await connection.ask(LISTEN, params, timeout=float("inf"))
            finally:
                connection.forget_listen(marker, changes.subscription)
                changes.subscription = None
