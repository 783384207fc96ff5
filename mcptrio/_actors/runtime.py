"""The runtime: one per process. It owns the supervisor, opens the store and runs the server's lifespan.

Transports borrow a runtime and start sessions in it; none of them owns a session, so a session never ends because the
connection that created it did.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
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
from mcptrio._actors.session_ids import new_session_id
from mcptrio._actors.shares import Owners, Shares
from mcptrio._actors.store import Bus, Store
from mcptrio._actors.supervisor import Supervisor
from mcptrio._actors.turns import Turns
from mcptrio._peer.effects import Start
from mcptrio._peer.link import ReplyLink, SessionLink
from mcptrio._struct import Entity
from mcptrio.auth.request_state import KeyRing

if TYPE_CHECKING:
    from mcptrio._actors.homes import Homes
    from mcptrio._actors.record import SessionRecord
    from mcptrio._actors.watchdog import Watchdog
    from mcptrio._bridge.to_asyncio import AsyncioLoop
    from mcptrio._eras.choose import Served
    from mcptrio.auth.server.principal import Principal
    from mcptrio.types import Implementation

logger = logging.getLogger("mcptrio.runtime")


class Application(Service, Protocol):
    """The application of a runtime: a server, as its transports see it."""

    @property
    def eras(self) -> Served: ...
    @property
    def info(self) -> Implementation: ...

    def needed_scopes(self, method: str, params: Mapping[str, Any], all_of_them: bool = False) -> Collection[str]:
        """Return the scopes that a request requires; with `all_of_them`, also those of entries that are hidden."""
        ...

    def all_scopes(self) -> Collection[str]:
        """Return all scopes that any entry requires."""
        ...

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]: ...

    def parameter_headers(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return the arguments of a tool that HTTP clients repeat in headers: header mark -> path of the argument."""
        ...

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Handle the start of the runtime; the returned function is called when it ends."""
        ...

    def may_rerun(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether a request may run a second time with no more than it was given."""
        ...

    def topics(self, session: Session) -> Sequence[str]:
        """Return the topics of the bus that concern a session: its lists, and its subscriptions."""
        ...

    async def restore(self, session: Session, record: SessionRecord, link: ReplyLink) -> None:
        """Bring the features of a session into the state of its record, and announce what has changed meanwhile.

        `link` is that of the request that continues the session.

        Raises:
            SessionRefused: the session function refuses it.
        """
        ...


class Runtime(Entity, kw_only=True):
    """The server-side environment of all transports.

    Owns: the supervisor's task, the store's tasks, the lifespan, the watchdog, the asyncio loop.
    Borrows: application, store, bus.
    `listeners` get telemetry events while it is open. A watchdog is a thread, so there is one only on request.
    """

    app: Application
    store: Store
    bus: Bus
    supervisor: Supervisor = field(default_factory=Supervisor)
    owners: Owners = field(default_factory=Owners)
    """Shared by the tables of places whose owners wait for them."""
    threads: Threads = field(default_factory=Threads)
    homes: Homes | None = None
    """The durable sessions, if the store is durable."""
    parking: Parking = field(default_factory=lambda: Parking(audience=""))
    lifespan: Any = None
    """The value that the server's lifespan function yielded."""
    serial: WeakValueDictionary[tuple[str, str], trio.CapacityLimiter] = field(default_factory=WeakValueDictionary)
    """The single slots of `one_at_a_time`, by work and owner; one exists while a task uses it."""
    once_locks: WeakValueDictionary[str, trio.Lock] = field(default_factory=WeakValueDictionary)
    """The lock of each key of `once`, by call and key; it exists while a task uses it."""
    turns: Turns = None  # type: ignore[assignment]  # set in `__post_init__`
    """The turns of the event loop in which the owners of HTTP requests begin them."""
    subscriptions: Shares = None  # type: ignore[assignment]  # set in `__post_init__`
    """The resources that each owner is subscribed to."""
    call_memory: Shares = None  # type: ignore[assignment]  # set in `__post_init__`
    """Bytes of the large requests whose calls have not ended."""
    takeovers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Functions that take over the work of dead workers. The cluster calls them after each renewal of its lease."""
    forward: Callable[[str, Start], Awaitable[None]] | None = None
    """In a cluster: has another worker answer a request that did not come over HTTP. Raises the error of its answer."""
    ready: bool = False
    listeners: list[telemetry.Listener] = field(default_factory=list)
    watchdog: Watchdog | None = None
    _token: trio.lowlevel.TrioToken | None = None
    _asyncio: AsyncioLoop | None = None

    def __post_init__(self) -> None:
        self.turns = Turns(self.supervisor)
        self.threads.shares.owners = self.owners
        self.call_memory = Shares(self.supervisor.limits.max_call_memory, owners=Owners(several=True))
        self.subscriptions = Shares(self.supervisor.limits.max_subscriptions, owners=Owners(several=True))

    @property
    def hub(self) -> telemetry.Hub:
        return self.app.telemetry

    @property
    def worker(self) -> str:
        """The id of this worker, while it belongs to a cluster; otherwise empty."""
        return self.parking.worker

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
            from mcptrio._actors.homes import Homes  # not needed in most processes

            self.parking.marks, self.parking.shared = self.store.marks, self.store.shared
            self.homes = self.supervisor.homes = Homes(self)
            self.store.on_fenced = self.homes.lost
        self.app.router.freeze()
        self._token = trio.lowlevel.current_trio_token()
        with self._observed():
            async with (
                self.store.open(),
                self._closing_asyncio(),
                self.app.lifespan_context() as self.lifespan,
                trio.open_nursery() as nursery,
            ):
                if self.store.shared and not self.parking.keys.configured:
                    self.parking.keys = KeyRing.derived(self.store.secret)
                    logger.info(
                        "states of questions are sealed with a key from the store: anyone who can read the store can "
                        "open them; configure keys (state_keys=, --state-key-file) to prevent that"
                    )
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
                        self.turns.close()
                        nursery.cancel_scope.cancel()

    def asyncio_loop(self) -> AsyncioLoop:
        """Return the asyncio loop for functions that need one; the first use starts it."""
        if self._asyncio is None:
            from mcptrio._bridge.to_asyncio import AsyncioLoop

            self._asyncio = AsyncioLoop()
        return self._asyncio

    @asynccontextmanager
    async def _closing_asyncio(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._asyncio is not None:
                await self._asyncio.close()
                self._asyncio = None

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
        if trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is self._token:
            fn(*args)
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(_call_logged, fn, args)

    def _store_changed(self, problem: str | None) -> None:
        if self.hub:
            self.hub.emit(telemetry.StoreChanged(store=type(self.store).__name__, problem=problem))

    def one_at_a_time(self, what: str, owner: str) -> trio.CapacityLimiter:
        """Return the single slot of an owner for one kind of work; the others wait in order."""
        return self.serial.setdefault((what, owner), trio.CapacityLimiter(1))

    def new_session(
        self,
        link: SessionLink,
        *,
        transport: str,
        principal: Principal | None = None,
        owner: str = "",
        reader: Callable[[], Awaitable[None]] | None = None,
    ) -> Session:
        """Start a session under the supervisor, with the task that reads the frames of its peer, if it has one.

        A client that comes back with the id of the session has to have the identity of its link.

        Raises:
            Overloaded: there are too many sessions, or the process is shutting down.
        """
        session = Session(
            id=new_session_id(self.store.secret, link.identity),
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
        sessions = len(self.supervisor.sessions)
        logger.info("draining: %d session%s, up to %g s", sessions, "" if sessions == 1 else "s", grace)
        await self.supervisor.drain(grace)


def _call_logged(fn: Callable[..., object], args: tuple[Any, ...]) -> None:
    """Call a function for another thread. An exception would end the event loop, and the thread has gone on."""
    try:
        fn(*args)
    except Exception:
        logger.exception("a call from another thread failed")
