"""The cluster as one endpoint borrows it: requests to and from other workers, and the sessions of dead ones.

Owns: the membership, the links, the socket for other workers.   Borrows: the endpoint, the store.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec
import trio

from mcptrio import telemetry
from mcptrio._wire.jsonrpc import Batch, Frame
from mcptrio.cluster.channel import LinkIdentity
from mcptrio.cluster.config import ClusterConfig
from mcptrio.cluster.followed import FollowedSession, follow_answer, make_response
from mcptrio.cluster.frames import OVERHEAD, AnswerFrame, Forward, Forwarded, ForwardedStream, NotHome
from mcptrio.cluster.link_client import LinkBroken, PeerLink, Unreachable
from mcptrio.cluster.link_server import AcceptedLink, LinkServer, RemoteStream
from mcptrio.cluster.membership import Membership, WorkerInfo
from mcptrio.cluster.messages import (
    CallerNotPortable,
    forwarded_head,
    make_forward,
    not_forwarded,
    unanswered,
    unavailable,
)
from mcptrio.cluster.pages import METRICS, gather_pages, own_page
from mcptrio.cluster.placement import REPORTED, Outcome, RouteStep, SessionRoute
from mcptrio.cluster.remembered import RememberedHomes
from mcptrio.cluster.sockets import dial
from mcptrio.errors import Overloaded
from mcptrio.stores.base import HomeAt, UnknownCursor
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.event_stream import StreamResponse
from mcptrio.transports.http_server.endpoint.exchange_stream import is_of_exchange
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, Stream, unknown_session
from mcptrio.transports.http_server.endpoint.remote import RemoteConnection

if TYPE_CHECKING:
    from mcptrio.stores.redis import RedisStore

logger = logging.getLogger("mcptrio.cluster")

TAKEOVERS: Final = 8
"""Sessions of dead workers that are taken over at the same time, because clients follow them here."""


class WorkerCluster:
    """The `Cluster` of one endpoint, see `open_cluster`."""

    def __init__(
        self, endpoint: Endpoint, store: RedisStore, config: ClusterConfig, info: WorkerInfo, worker: str | None
    ) -> None:
        self.membership = Membership(store, config, info, self._on_alive, worker, endpoint.runtime.hub)
        self.membership.on_id = self._on_id
        self._endpoint = endpoint
        self._config = config
        self._store = store
        self._links: dict[str, PeerLink] = {}
        self._homes = RememberedHomes(self._links)
        self._listed: set[str] = set()  # alive or linked at the last renewal; one that joined since is not
        self._followed: dict[str, FollowedSession] = {}
        self._remote: dict[tuple[str, int], StreamResponse] = {}  # by worker and number of the request
        self._taking: set[str] = set()
        self._limiter = trio.CapacityLimiter(TAKEOVERS)
        self._nursery: trio.Nursery | None = None
        self._working = False  # whether the work of dead workers is being taken over

    @property
    def serves(self) -> bool:
        return self.membership.serves

    @property
    def may_claim(self) -> bool:
        return self.membership.may_claim

    def drain(self) -> None:
        """Claim no more sessions (R12)."""
        self.membership.drain()

    def declare_dead(self, worker: str) -> None:
        """Remove a worker of which is known that it died, and continue its sessions where clients follow them."""
        if self._nursery is not None:
            self._nursery.start_soon(self.membership.declare_dead, worker)

    def identity(self) -> LinkIdentity:
        """Return what this worker says to others."""
        largest = self._endpoint.config.max_body + self._endpoint.config.max_header_bytes + OVERHEAD
        return LinkIdentity.derive(self.membership.worker, self._store.name, self._store.secret, largest)

    # -- requests of sessions that live elsewhere

    def remembered(self, session_id: str) -> HomeAt | None:
        return self._homes.find(session_id)

    async def look(self, session_id: str) -> HomeAt | None:
        if (homes := self._endpoint.runtime.homes) is not None:
            await homes.settled(session_id)  # R4: it may be leaving this worker just now
        return await self._store.sessions.look(session_id)

    async def forward(
        self, head: HttpRequest, body: bytes, frame: Frame | Batch | None, home: HomeAt | None
    ) -> Plain | Stream | None:
        session = head.fields[b"mcp-session-id"].decode("latin-1")
        try:
            return await self._route(head, body, frame, session, home)
        except (Overloaded, CallerNotPortable) as error:
            return not_forwarded(error, frame)

    async def _route(
        self, head: HttpRequest, body: bytes, frame: Frame | Batch | None, session: str, home: HomeAt | None
    ) -> Plain | Stream | None:
        route = SessionRoute()
        while True:
            may_claim = home is None
            home = home or await self.membership.choose_other()
            route, _ = route.step(Outcome.AT)
            forward = make_forward(head, body, session, may_claim=may_claim)
            answer, outcome = await self._send(home, forward, head.owner)
            route, step = route.step(outcome, trio.current_time(), self.membership.lease_of(home.worker))
            self._forwarded(session, home, REPORTED.get(step))
            if step is RouteStep.REPLY and not isinstance(answer, NotHome | None):
                if not may_claim:
                    self._homes.note(session, home)
                return await self._reply(answer, home.worker, frame)
            self._homes.drop(session)
            if step is RouteStep.UNAVAILABLE:
                return unavailable(frame)
            if step is RouteStep.MAY_HAVE_RUN:
                self._take_over_soon(session)
                return unanswered(frame)
            if step is RouteStep.PAUSE:
                await trio.sleep(route.pause)
            found = await self.locate(session, head, home if outcome is Outcome.NOT_HOME else None)
            if isinstance(found, bool):
                self._forwarded(session, home, "here" if found else "gone")
                return None if found else unknown_session()
            home = found

    async def _send(self, home: HomeAt, request: Forward, owner: str) -> tuple[AnswerFrame | None, Outcome]:
        """Send a request of an owner to a worker, and wait for the answer."""
        try:
            answer = await self._link(home).forward(request, owner)
        except Unreachable:
            return None, Outcome.UNREACHABLE
        except LinkBroken as error:
            logger.warning("%s", error)
            return None, Outcome.BROKEN
        return answer, Outcome.NOT_HOME if isinstance(answer, NotHome) else Outcome.ANSWERED

    async def forward_to(
        self, worker: str, head: HttpRequest, body: bytes, frame: Frame | Batch
    ) -> Plain | Stream | None:
        route = SessionRoute()
        try:
            while (home := await self.membership.find(worker)) is not None:
                route, _ = route.step(Outcome.AT)
                answer, outcome = await self._send(home, make_forward(head, body, "", may_claim=False), head.owner)
                route, step = route.step(outcome, trio.current_time(), self.membership.lease_of(worker))
                self._forwarded("-", home, REPORTED.get(step))
                if step is RouteStep.REPLY and not isinstance(answer, NotHome | None):
                    return await self._reply(answer, worker, frame)
                if step is RouteStep.UNAVAILABLE:
                    return unavailable(frame)
                if step is RouteStep.MAY_HAVE_RUN:
                    return unanswered(frame)
                if step is RouteStep.CLAIM:
                    return None
                await trio.sleep(route.pause)
        except (Overloaded, CallerNotPortable) as error:
            return not_forwarded(error, frame)
        return None

    def _forwarded(self, session: str, home: HomeAt, outcome: str | None) -> None:
        hub = self._endpoint.runtime.hub
        if hub and outcome is not None:
            hub.emit(telemetry.RequestForwarded(session=session, worker=home.worker, outcome=outcome))

    async def locate(self, session_id: str, head: HttpRequest, denied: HomeAt | None = None) -> HomeAt | bool | None:
        if self.may_claim:
            try:
                found = await self._endpoint.sessions.activation.locate(session_id, head, denied)
                return found if isinstance(found, HomeAt) else found is not None
            except Overloaded:
                if self.may_claim:
                    raise
        return await self.look(session_id)  # R12: it drains, perhaps only since a moment ago

    def _link(self, home: HomeAt) -> PeerLink:
        link = self._links.get(home.worker)
        if link is None:
            if self._nursery is None:
                raise Unreachable("this worker has left its cluster")
            if not home.address:
                raise Unreachable(f"worker {home.worker} has not come back yet")
            info = msgspec.json.decode(home.address, type=WorkerInfo)
            on_close = partial(self._on_close, home.worker)
            link = PeerLink(
                home.worker, self.identity(), self._nursery, partial(dial, info.address, self._config), on_close
            )
            self._links[home.worker] = link
        return link

    async def _reply(
        self, answer: Forwarded | ForwardedStream, worker: str, frame: Frame | Batch | None
    ) -> Plain | Stream:
        if isinstance(answer, Forwarded):
            return Plain(answer.status, tuple(answer.headers), answer.body)
        link = self._links.get(worker)
        if link is None:
            return unanswered(frame)  # it died a moment ago
        try:
            follower = await follow_answer(self._store, answer)
        except (UnknownCursor, Overloaded):
            # The store is not available, or was not when the stream began. The call runs: the client must not repeat
            # it, but come back with the id that it gets.
            link.detach(answer.id, "disconnected")
            if answer.prologue:
                return Plain(200, tuple(answer.headers), answer.prologue)
            return unanswered(frame)
        except BaseException:
            link.detach(answer.id, "disconnected")
            raise
        response = make_response(answer, follower, self._endpoint)
        followed = self._followed.setdefault(answer.session, FollowedSession(worker, is_of_exchange(answer.session)))
        followed.home = worker
        followed.responses[response] = answer.stream
        self._remote[worker, answer.id] = response

        def detached(cause: str) -> None:
            if self._remote.get((worker, answer.id)) is response:  # a new link counts from 1 again
                del self._remote[worker, answer.id]
            followed.responses.pop(response, None)
            if not followed.responses and self._followed.get(answer.session) is followed:
                del self._followed[answer.session]
            link.detach(answer.id, cause)

        response.on_detach = detached
        return Stream(200, tuple(answer.headers), response)

    def _on_close(self, worker: str, number: int, retry: bool) -> None:
        if (response := self._remote.get((worker, number))) is not None:
            if retry:
                response.say_retry()
            response.close()

    async def other_pages(self) -> list[str]:
        return await gather_pages(self.membership, self._link)

    # -- workers that died

    def _on_alive(self, alive: set[str]) -> None:
        for worker in [worker for worker in self._links if worker not in alive and worker in self._listed]:
            self._links.pop(worker).give_up(f"worker {worker} is dead")
        self._listed = alive | self._links.keys()
        for session, followed in list(self._followed.items()):
            if followed.home not in alive:
                # R8: a client whose connection was not cut would wait until another request caused the takeover.
                if followed.stateless:
                    followed.send_back(calls=True)
                else:
                    self._take_over_soon(session)
        self._send_lost_back(alive)
        if self.may_claim and not self._working and self._endpoint.runtime.takeovers and self._nursery is not None:
            self._working = True
            self._nursery.start_soon(self._take_over_work)

    def _send_lost_back(self, alive: set[str]) -> None:
        """Have clients connect again that the home of their session takes for gone, or does not know."""
        for (worker, number), response in list(self._remote.items()):
            followed, link = self._followed.get(response.session), self._links.get(worker)
            if followed is None or followed.home not in alive or followed.home == self.membership.worker:
                continue
            if worker != followed.home or link is None or number <= link.lost:
                followed.send_one_back(response)

    async def _take_over_work(self) -> None:
        """Take over what the extensions left in dead workers; if that fails, the next renewal tries again."""
        try:
            for take_over in self._endpoint.runtime.takeovers:
                await take_over()
        except Overloaded:
            return
        except Exception:  # a guard: the next renewal tries again
            logger.exception("the work of a dead worker could not be taken over")
        finally:
            self._working = False

    def _on_id(self, worker: str) -> None:
        """Handle the id of this worker. A second one says that it was declared dead: others continue its work."""
        self._endpoint.runtime.parking.rename(worker)
        self._store.tasks.start_over()

    def _take_over_soon(self, session: str) -> None:
        if session not in self._taking and self._nursery is not None:
            self._taking.add(session)
            self._nursery.start_soon(self._take_over, session)

    async def _take_over(self, session: str) -> None:
        """Claim a session whose home died, so that its calls end; if that fails, the next renewal tries again."""
        try:
            async with self._limiter:
                if not self.may_claim:
                    return
                found = await self._endpoint.sessions.activation.locate(session)
        except Overloaded:
            return
        except Exception:  # a guard: the next renewal tries again
            logger.exception("session %s could not be taken over", session[:8])
            return
        finally:
            self._taking.discard(session)
        followed = self._followed.get(session)
        if followed is not None:
            followed.home = found.worker if isinstance(found, HomeAt) else self.membership.worker
            followed.send_back(calls=found is None)  # the streams of calls end by themselves, with the error

    # -- requests of other workers

    async def answer(self, request: Forward, link: AcceptedLink) -> tuple[AnswerFrame, RemoteStream | None]:
        """Answer a request that another worker forwarded. It is not forwarded again (R5)."""
        if request.path == METRICS.path and not request.session:
            return own_page(self._endpoint, request.id), None
        head = forwarded_head(request)
        head.remote = lambda retry: link.close_remote(request.id, retry=retry)
        reply = await self._endpoint.answer_forwarded(
            head, request.body, stateless=not request.session, may_claim=request.may_claim
        )
        if reply is None:
            return NotHome(request.id), None
        if isinstance(reply, Plain):
            return Forwarded(request.id, reply.status, reply.headers, reply.body), None
        remote = reply.events
        if not isinstance(remote, RemoteConnection):
            raise TypeError("a forwarded request was answered with a stream of this worker")
        try:
            await self._store.flush()  # R7: the client gets no id of a stream that other workers do not know
        except BaseException:  # the client, or the link to its worker, is gone
            remote.detach("disconnected")
            raise
        stream = ForwardedStream(
            request.id,
            remote.session,
            remote.stream,
            remote.after,
            remote.prologue,
            reply.headers,
            remote.resumable,
            remote.request_id,
        )
        return stream, remote

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen to other workers and join the cluster."""
        server = LinkServer(self.identity, self.answer)
        # The server is outside: closed in a nursery that is cancelled, its socket would replace an error by Cancelled.
        async with server.open(self._config), trio.open_nursery() as self._nursery:
            self.membership.info = msgspec.structs.replace(self.membership.info, address=server.address)
            try:
                async with self.membership.open():
                    yield
                    self.drain()
                    await server.leave()
            finally:
                self._nursery.cancel_scope.cancel()
                self._nursery = None


@asynccontextmanager
async def open_cluster(
    endpoint: Endpoint,
    config: ClusterConfig,
    *,
    server: str,
    version: str,
    worker: str | None = None,
    parent: str = "",
) -> AsyncIterator[WorkerCluster]:
    """Join the cluster of an endpoint as one of its workers, under the id `worker` if its parent has given it one.

    Raises:
        StoreFailed: another server uses the same name in the store.
    """
    store = cast("RedisStore", endpoint.runtime.store)  # the one store that is shared
    cluster = WorkerCluster(endpoint, store, config, WorkerInfo("", server, version, config.slot, parent), worker)
    async with cluster.open():
        endpoint.routing.join(cluster)
        try:
            yield cluster
        finally:
            endpoint.routing.join(None)
