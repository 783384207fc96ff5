"""The runtime: one per process. It owns the supervisor, the store and the server's lifespan, side by side.

Transports are given a runtime and hand it sessions; none of them owns one, so a session never ends because the
connection that created it did.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.link import Link
from mcptrio._actors.parking import Parking
from mcptrio._actors.session import Service, Session
from mcptrio._actors.supervisor import Supervisor, new_session_id
from mcptrio._peer.messages import Cause
from mcptrio._struct import Entity

if TYPE_CHECKING:
    from mcptrio._actors.watchdog import Watchdog

logger = logging.getLogger("mcptrio.runtime")


class Application(Service, Protocol):
    """What a runtime runs: a service with a lifespan."""

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]: ...

    def parameter_headers(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Which arguments of a tool HTTP clients repeat in headers: the header's mark -> the argument's path."""
        ...

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Called when the runtime is open; what it returns is called when the runtime ends."""
        ...


class Store(Protocol):
    def open(self) -> AbstractAsyncContextManager[None]: ...


class Runtime(Entity, kw_only=True):
    """Owns: the supervisor's task, the store's tasks, the lifespan, the watchdog.   Lent: application, store, bus.

    `listeners` hear of what happens while it is open. A watchdog is a thread, so there is one only if asked for.
    """

    app: Application
    store: Any
    """A `mcptrio.stores.EventStore`; this layer only opens it."""
    bus: Any
    supervisor: Supervisor = field(default_factory=Supervisor)
    parking: Parking = field(default_factory=lambda: Parking(audience=""))
    lifespan: Any = None
    """What the server's lifespan function yielded."""
    ready: bool = False
    listeners: list[telemetry.Listener] = field(default_factory=list)
    watchdog: Watchdog | None = None

    @property
    def hub(self) -> telemetry.Hub:
        return self.app.telemetry

    @property
    def stalled(self) -> bool:
        """Whether a handler has just blocked the event loop for too long to be given more work."""
        return self.watchdog is not None and self.watchdog.stalled

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runtime]:
        """Run everything that a server needs beside its transports. Leaving cancels what is left; drain first."""
        self.supervisor.hub = self.parking.hub = self.hub
        self.supervisor.parking = self.parking
        if getattr(self.store, "durable", False):
            self.parking.store = self.store
        self.app.router.freeze()
        store: Store = self.store
        with self._observed():
            async with store.open(), self.app.lifespan_context() as self.lifespan, trio.open_nursery() as nursery:
                await nursery.start(self.supervisor.run)
                detach = self.app.attach(self)
                self.ready = True
                try:
                    yield self
                finally:
                    self.ready = False
                    detach()
                    nursery.cancel_scope.cancel()

    @contextmanager
    def _observed(self) -> Iterator[None]:
        """While this lasts the runtime's own listeners hear, and the watchdog watches."""
        with ExitStack() as ends:
            for listener in self.listeners:
                self.hub.add(listener)
                ends.callback(self.hub.remove, listener)
            if getattr(self.store, "on_state", self) is None:
                self.store.on_state = self._store_changed
            if self.watchdog is not None:
                ends.enter_context(self.watchdog.watching())
            yield

    def _store_changed(self, problem: str | None) -> None:
        if self.hub:
            self.hub.emit(telemetry.StoreChanged(store=type(self.store).__name__, problem=problem))

    def new_session(
        self,
        link: Link,
        *,
        transport: str,
        principal: Any = None,
        session_id: str | None = None,
        carrier: Callable[[], Awaitable[None]] | None = None,
    ) -> Session:
        """Start a session under the supervisor, with the task that brings what its peer sends if it has one.

        Raises:
            Overloaded: there are too many, or the process is about to end.
        """
        session = Session(
            id=session_id or new_session_id(),
            service=self.app,
            link=link,
            transport=transport,
            principal=principal,
            runtime=self,
        )
        self.supervisor.start(session, carrier)
        return session

    async def drain(self, grace: float) -> None:
        """Stop taking work in, let what runs finish for `grace` seconds, end the rest with a reason."""
        self.ready = False
        logger.info("draining: %d sessions, up to %g s", len(self.supervisor.sessions), grace)
        await self.supervisor.drain(grace)


async def serve_session(runtime: Runtime, session: Session) -> None:
    """Wait until a session that lives as long as a pipe is over."""
    ended = trio.Event()
    session.on_end.append(ended.set)
    if session.ended is None:
        await ended.wait()


__all__ = ["Application", "Cause", "Runtime", "serve_session"]
