"""The interfaces between a session, the server or client that it belongs to, and its parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import trio

from mcptrio import telemetry
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.machine import Eras, Peer
from mcptrio._peer.messages import Cause, Message, ReplyFuture

if TYPE_CHECKING:
    from mcptrio._actors.background import Background
    from mcptrio._actors.call import Call
    from mcptrio._actors.future import Reply
    from mcptrio._actors.handlers import Handlers
    from mcptrio._actors.journal import Read
    from mcptrio._actors.limits import Limits
    from mcptrio._actors.router import Router
    from mcptrio._actors.runtime import Runtime
    from mcptrio.auth.server.principal import Principal


class Service(Protocol):
    """A server or a client, as its sessions see it."""

    @property
    def role(self) -> Role: ...
    @property
    def eras(self) -> Eras: ...
    @property
    def router(self) -> Router: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def telemetry(self) -> telemetry.Hub: ...

    def make_context(self, session: Actor, call: Call) -> Any:
        """Create the object that handlers get as `ctx`."""
        ...

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        """Add the fields that every result of this revision has."""
        ...

    def may_replay(self, start: Start) -> bool:
        """Return whether the handler of this request may run again from the top."""
        ...

    def request_scope(self, session: Actor, call: Call) -> AbstractAsyncContextManager[Any] | None:
        """Return the context manager around a stateless request, if there is one."""
        ...

    def offers_now(self) -> Container[str]:
        """Return the names of the capabilities that are declared at present."""
        ...


def make_peer(service: Service, eras: Eras | None = None) -> Peer:
    """Create the machine of a session or exchange; `eras` replaces those of the service."""
    return Peer(
        role=service.role,
        eras=service.eras if eras is None else eras,
        routes=service.router.routes,
        max_running=service.limits.running,
        offers_now=service.offers_now,
    )


class Mailbox(Protocol):
    """The mailbox of a session or an exchange."""

    async def post(self, message: Message) -> None:
        """Post a message; blocks while there is no room. Raises `ConnectionLost` if the session is over."""
        ...

    def post_nowait(self, message: Message) -> bool:
        """Post a message; return False if there is no room or the session is over."""
        ...

    def post_soon(self, message: Message) -> None:
        """Post a message that must not be lost."""
        ...


class Outgoing(Protocol):
    """The sender of requests and notifications to the peer: `Asks`, or `TaskAsks` for the handler of a task."""

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        call: Call | None = None,
        timeout: float | None = None,
        reply: Reply | None = None,
        key: str | None = None,
        read: Read | None = None,
    ) -> Any: ...

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None: ...

    def notify_nowait(self, method: str, params: dict[str, Any]) -> None: ...

    async def gather(self, call: int, reply: ReplyFuture) -> None: ...


class Actor(Protocol):
    """A session or an exchange, as its parts (handlers, asks) and the contexts of its handlers see it."""

    id: str
    service: Service
    principal: Principal | None
    owner: str
    transport: str
    ended: Cause | None
    reason: str | None
    """Why a handler ended the session."""
    state: Any
    log_level: str | None
    on_end: list[Callable[[], None]]
    label: str
    """The last part of the names of its tasks, for example `session Da3hUw2P`."""

    peer: Peer
    nursery: trio.Nursery | None
    """Where the tasks of its handlers run; None if `spawn` has to prepare one."""

    @property
    def link(self) -> ReplyLink: ...
    @property
    def epoch(self) -> int:
        """How often it was continued from a record."""
        ...

    @property
    def handlers(self) -> Handlers: ...
    @property
    def asks(self) -> Outgoing: ...
    @property
    def background(self) -> Background: ...
    @property
    def runtime(self) -> Runtime:
        """The runtime of the server. Raises `LocalProtocolError` for the sessions of a client."""
        ...

    @property
    def inbox(self) -> Mailbox: ...
    @property
    def data(self) -> dict[str, Any]: ...
    def spawn(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """Run `fn` in its nursery."""
        ...

    def changed(self) -> None:
        """Have the record of a durable session stored again."""
        ...

    def close(self, cause: Cause) -> None:
        """Perform the effect `Close`: no further message is processed."""
        ...

    def close_nowait(self, cause: Cause) -> None:
        """Ask it to end."""
        ...
