"""The runtime: one per process. It owns the supervisor, opens the store and runs the server's lifespan.

Transports borrow a runtime and start sessions in it; none of them owns a session, so a session never ends because the
connection that created it did.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.parking import Parking
from mcptrio._actors.places import Threads
from mcptrio._actors.service import Service
from mcptrio._actors.session import Session
from mcptrio._actors.store import Bus, Store
from mcptrio._actors.supervisor import Supervisor, new_session_id
from mcptrio._peer.link import ReplyLink
from mcptrio._struct import Entity
from mcptrio.auth.request_state import KeyRing

if TYPE_CHECKING:
    from mcptrio._actors.watchdog import Watchdog

logger = logging.getLogger("mcptrio.runtime")


class Application(Service, Protocol):
    """The application of a runtime: a service with a lifespan."""

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]: ...

    def parameter_headers(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return the arguments of a tool that HTTP clients repeat in headers: header mark -> path of the argument."""
        ...

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Handle the start of the runtime; the returned function is called when it ends."""
        ...


class Runtime(Entity, kw_only=True):
    """The server-side environment of all transports.

    Owns: the supervisor's task, the store's tasks, the lifespan, the watchdog.   Borrows: application, store, bus.
    `listeners` get telemetry events while it is open. A watchdog is a thread, so there is one only on request.
    """

    app: Application
    store: Store
    bus: Bus
    supervisor: Supervisor = field(default_factory=Supervisor)
    threads: Threads = field(default_factory=Threads)
    parking: Parking = field(default_factory=lambda: Parking(audience=""))
    lifespan: Any = None
    """The value that the server's lifespan function yielded."""
    serial: WeakValueDictionary[tuple[str, str], trio.CapacityLimiter] = field(default_factory=WeakValueDictionary)
    """The single slot of each serial tool, by tool and caller; it exists while a call uses it."""
    once_locks: WeakValueDictionary[str, trio.Lock] = field(default_factory=WeakValueDictionary)
    """The lock of each key of `once`, by call and key; it exists while a task uses it."""
    ready: bool = False
    listeners: list[telemetry.Listener] = field(default_factory=list)
    watchdog: Watchdog | None = None
    _token: trio.lowlevel.TrioToken | None = None

    @property
    def hub(self) -> telemetry.Hub:
        return self.app.telemetry

    @property
    def stalled(self) -> bool:
        """Whether a handler has just blocked the event loop for so long that readiness probes should fail."""
        return self.watchdog is not None and self.watchdog.stalled

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runtime]:
        """Run the parts that a server needs besides its transports. Leaving cancels all sessions; drain first."""
        self.supervisor.hub = self.parking.hub = self.hub
        self.supervisor.parking, self.supervisor.threads = self.parking, self.threads
        if self.store.durable:
            self.parking.marks, self.parking.shared = self.store.marks, self.store.shared
        self.app.router.freeze()
        self._token = trio.lowlevel.current_trio_token()
        with self._observed():
            async with self.store.open(), self.app.lifespan_context() as self.lifespan, trio.open_nursery() as nursery:
                if self.store.shared and not self.parking.keys.configured:
                    self.parking.keys = KeyRing.derived(self.store.secret)
                await nursery.start(self.supervisor.run)
                detach = self.app.attach(self)
                # Not around the lifespan: while it loads a model or certificates, no request waits for the loop.
                with self.watchdog.watching() if self.watchdog is not None else nullcontext():
                    self.ready = True
                    try:
                        yield self
                    finally:
                        self.ready = False
                        detach()
                        nursery.cancel_scope.cancel()

    @contextmanager
    def _observed(self) -> Iterator[None]:
        """Connect the runtime's listeners, and the listener to the store's state."""
        with ExitStack() as ends:
            for listener in self.listeners:
                self.hub.add(listener)
                ends.callback(self.hub.remove, listener)
            if self.store.on_state is None:
                self.store.on_state = self._store_changed
                ends.callback(setattr, self.store, "on_state", None)
            yield

    def call_soon(self, fn: Callable[..., object], *args: Any) -> None:
        """Call a plain function in the runtime's event loop: at once, or soon if the caller is in another thread."""
        if self._token is None:
            return
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token:
            fn(*args)
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(fn, *args)

    def _store_changed(self, problem: str | None) -> None:
        if self.hub:
            self.hub.emit(telemetry.StoreChanged(store=type(self.store).__name__, problem=problem))

    def new_session(
        self,
        link: ReplyLink,
        *,
        transport: str,
        principal: Any = None,
        owner: str = "",
        session_id: str | None = None,
        reader: Callable[[], Awaitable[None]] | None = None,
    ) -> Session:
        """Start a session under the supervisor, with the task that reads the frames of its peer, if it has one.

        Raises:
            Overloaded: there are too many sessions, or the process is shutting down.
        """
        session = Session(
            id=session_id or new_session_id(),
            service=self.app,
            link=link,
            transport=transport,
            principal=principal,
            owner=owner,
            _runtime=self,
        )
        self.supervisor.start(session, reader)
        return session

    async def drain(self, grace: float) -> None:
        """Accept no more work, let running calls finish for `grace` seconds, and end the rest with a reason."""
        self.ready = False
        logger.info("draining: %d sessions, up to %g s", len(self.supervisor.sessions), grace)
        await self.supervisor.drain(grace)
