"""Where a request of a session is served: here, or at another worker."""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import define

from mcptrio._wire.jsonrpc import Batch, Frame, Request
from mcptrio.errors import Overloaded

from .activation import NotHere
from .message import HttpRequest, Plain, Stream, id_of, overloaded, refuse_overloaded, unknown_session
from .parts import EndpointParts
from .remote import Cluster
from .socket_calls import forward_call
from .stateful import Sessions

_NO_LEASE: Final = "this worker has no lease: it cannot reach the store"


@define(eq=False, repr=False)
class Routing:
    """The routing of requests to the worker that has their session.   Borrows: the cluster, while there is one."""

    parts: EndpointParts
    sessions: Sessions
    cluster: Cluster | None = None

    def join(self, cluster: Cluster | None) -> None:
        """Use the other workers of a cluster, or use them no more."""
        self.cluster, runtime = cluster, self.parts.runtime
        runtime.supervisor.serves_late = cluster is not None
        runtime.forward = None if cluster is None else partial(forward_call, cluster, self.parts.config.path)

    @property
    def expired(self) -> bool:
        """Whether this worker may not serve its sessions at present."""
        return self.cluster is not None and not self.cluster.serves

    async def elsewhere(
        self, head: HttpRequest, body: bytes, frame: Frame | Batch | None = None
    ) -> Plain | Stream | None:
        """Have another worker answer a request whose session lives there; None: it is served here.

        Then its session is here, and what serves the request raises `NotHere` if the session has left.
        """
        cluster, activation = self.cluster, self.sessions.activation
        if head.remote is not None:
            return None
        head.at_home = False  # it may be routed a second time
        if cluster is None:
            return None
        if not cluster.serves:
            return overloaded(_NO_LEASE, 1, request_id=id_of(frame), limit="lease")
        name = head.fields.get(b"mcp-session-id")
        session_id = "" if name is None else name.decode("latin-1")
        if self._stays(session_id, head) or not activation.may_exist(session_id, head):
            return None
        home = cluster.remembered(session_id)
        if home is None:
            try:
                found = await cluster.locate(session_id, head)
            except Overloaded as error:
                return refuse_overloaded(error, id_of(frame))
            if isinstance(found, bool):
                head.at_home = found
                return None if found else unknown_session(id_of(frame))
            home = found
        reply = await cluster.forward(head, body, frame, home)
        head.at_home = reply is None
        return reply

    async def stateless_elsewhere(self, head: HttpRequest, body: bytes, frame: Request) -> Plain | Stream | None:
        """Have another worker answer a stateless request if the call or task that it is about is there; None: served
        here."""
        if self.cluster is None or head.remote is not None:
            return None
        runtime = self.parts.runtime
        worker = runtime.parking.worker_of(frame.method, frame.params, head.principal)
        route = runtime.app.router.routes.get(frame.method)
        try:
            if worker is None and route is not None and route.home is not None:
                worker = await route.home(runtime, frame.params)
        except Overloaded as error:
            return refuse_overloaded(error, frame.id)
        return None if worker is None else await self.cluster.forward_to(worker, head, body, frame)

    async def message_elsewhere(
        self, session_id: str, head: HttpRequest, body: bytes, frame: Frame | Batch
    ) -> Plain | None:
        """Have the worker answer a message of HTTP+SSE that has the connection of its session; None: there is none."""
        cluster = self.cluster
        if cluster is None or head.remote is not None or not self.sessions.activation.may_exist(session_id, head):
            return None
        try:
            home = await cluster.look(session_id)
        except Overloaded as error:
            return refuse_overloaded(error, id_of(frame))
        reply = None if home is None else await cluster.forward_to(home.worker, head, body, frame)
        return reply if isinstance(reply, Plain) else None

    def _stays(self, session_id: str, head: HttpRequest) -> bool:
        """Return whether a session is in memory here; one that is quiet leaves a worker that drains."""
        session, homes = self.parts.runtime.supervisor.find(session_id), self.parts.runtime.homes
        if session is None:
            return False
        quiet = not session.peer.calls and session.inbox.idle
        if self.parts.draining and quiet and homes is not None and homes.may_leave(session, draining=True):
            homes.leave_soon(session)
            return False
        head.at_home = True
        return True

    async def check_forwarded(self, head: HttpRequest, *, stateless: bool, may_claim: bool) -> Plain | None:
        """Return None if a forwarded request is served here; a response if no worker has its session.

        Its session is in memory here, or was claimed now for a worker that drains. A stateless one is not served by a
        worker that drains itself, and has given up the calls that wait for their clients. A message of HTTP+SSE always
        is: the stream of its session is here, or nowhere.

        Raises:
            NotHere: it is to be served elsewhere.
            Overloaded: that cannot be found out at present, or this worker may not serve its sessions.
        """
        if stateless:
            if self.parts.draining and head.path != self.parts.config.messages_path:
                raise NotHere
            return None
        if self.expired:
            raise Overloaded(_NO_LEASE, retry_after=1, limit="lease")
        session_id, homes = head.fields[b"mcp-session-id"].decode("latin-1"), self.parts.runtime.homes
        for _ in range(2):  # it may be leaving, or leave now
            if homes is not None:
                await homes.settled(session_id)
            if self._stays(session_id, head):
                return None
        if not (may_claim and self.cluster is not None and self.cluster.may_claim):
            raise NotHere
        found = await self.cluster.locate(session_id, head)
        if not isinstance(found, bool):
            raise NotHere
        head.at_home = found
        return None if found else unknown_session()
